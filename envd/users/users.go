// Package users finds the accounts of a sandbox and runs file work with their rights.
package users

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"strconv"
)

// User is an account that processes and file operations run as.
type User struct {
	Name string
	Home string
	UID  int
	GID  int
	// Groups are the supplementary groups, the primary one included.
	Groups []int
}

// ErrUnknown says that no such account exists, or that envd may not act as it.
var ErrUnknown = errors.New("unknown user")

// ErrNotPermitted says that the account exists, but the sandbox does not let envd change to it: envd is not root, or
// lacks the capabilities, or the user namespace does not map the account.
var ErrNotPermitted = errors.New("this sandbox does not let envd act as another user; name none")

// Lookup finds an account by name and makes sure that envd can act as it. Errors wrap ErrUnknown; where only the right
// is missing, ErrNotPermitted as well.
func Lookup(name string) (User, error) {
	account, err := user.Lookup(name)
	if err != nil {
		return User{}, fmt.Errorf("error looking up user '%s': %w", name, unknown{fmt.Sprintf("user: unknown user %s", name)})
	}
	found, err := fromAccount(account)
	if err != nil {
		return User{}, fmt.Errorf("error looking up user '%s': %w", name, unknown{err.Error()})
	}
	if euid := os.Geteuid(); found.UID != euid && (euid != 0 || found.Act(func() error { return nil }) != nil) {
		return User{}, fmt.Errorf("error looking up user '%s': %w", name, notPermitted{ErrNotPermitted})
	}
	return found, nil
}

// Current is the account that envd itself runs as; an account without a passwd entry is named by its number.
func Current() User {
	if account, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		if found, err := fromAccount(account); err == nil {
			return found
		}
	}
	home := os.Getenv("HOME")
	if home == "" {
		home = "/"
	}
	return User{Name: strconv.Itoa(os.Geteuid()), Home: home, UID: os.Geteuid(), GID: os.Getegid(), Groups: []int{os.Getegid()}}
}

// FromHeader takes the user name out of the Authorization header, or "" when it names nobody. E2B names the user of an
// RPC by Basic authentication with an empty password; it proves nothing.
func FromHeader(header http.Header) string {
	name, _, _ := (&http.Request{Header: header}).BasicAuth()
	return name
}

func fromAccount(account *user.User) (User, error) {
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		return User{}, fmt.Errorf("user %s has the uid %q, not a number", account.Username, account.Uid)
	}
	gid, err := strconv.Atoi(account.Gid)
	if err != nil {
		return User{}, fmt.Errorf("user %s has the gid %q, not a number", account.Username, account.Gid)
	}
	found := User{Name: account.Username, Home: account.HomeDir, UID: uid, GID: gid, Groups: []int{gid}}
	ids, _ := account.GroupIds() // without a group file the primary group is all there is
	for _, id := range ids {
		if number, err := strconv.Atoi(id); err == nil && number != gid {
			found.Groups = append(found.Groups, number)
		}
	}
	return found, nil
}

// unknown keeps the upstream wording of the cause and still is ErrUnknown.
type unknown struct{ message string }

func (u unknown) Error() string        { return u.message }
func (u unknown) Is(target error) bool { return target == ErrUnknown }

// notPermitted is both errors.
type notPermitted struct{ error }

func (n notPermitted) Unwrap() error        { return n.error }
func (n notPermitted) Is(target error) bool { return target == ErrUnknown }
