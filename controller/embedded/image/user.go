package image

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"navix.sh/agentbox/controller/embedded/runtime"
)

// LookupUser resolves "", "name", "uid", "name:group" or "uid:gid" with the image's own user and group files.
// The second result is the user's home directory, "/" when it has none.
func (i *Image) LookupUser(spec string) (runtime.User, string, error) {
	root, err := os.OpenRoot(i.Tree)
	if err != nil {
		return runtime.User{}, "", err
	}
	defer root.Close()
	who, group, hasGroup := strings.Cut(spec, ":")
	if who == "" {
		who = "0"
	}
	var user runtime.User
	var name string
	home := "/"
	number, numeric := parseID(who)
	found, err := scan(root, "etc/passwd", 7, func(f []string) bool {
		uid, ok := parseID(f[2])
		gid, ok2 := parseID(f[3])
		if !ok || !ok2 || (numeric && uid != number) || (!numeric && f[0] != who) {
			return false
		}
		name, home, user.UID, user.GID = f[0], f[5], uid, gid
		return true
	})
	if err != nil {
		return user, "", err
	}
	if !found && !numeric {
		return user, "", fmt.Errorf("the image has no user %q in /etc/passwd", who)
	}
	if !found {
		user.UID = number
	}
	if hasGroup && group != "" {
		gid, ok := parseID(group)
		if !ok {
			if ok, err = scan(root, "etc/group", 3, func(f []string) bool {
				gid, ok = parseID(f[2])
				return ok && f[0] == group
			}); err != nil {
				return user, "", err
			}
			if !ok {
				return user, "", fmt.Errorf("the image has no group %q in /etc/group", group)
			}
		}
		user.GID = gid
	}
	if name != "" {
		if _, err = scan(root, "etc/group", 4, func(f []string) bool {
			if gid, ok := parseID(f[2]); ok && gid != user.GID && slices.Contains(strings.Split(f[3], ","), name) {
				user.Groups = append(user.Groups, gid)
			}
			return false
		}); err != nil {
			return user, "", err
		}
	}
	if home == "" {
		home = "/"
	}
	return user, home, nil
}

func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// scan calls match for the fields of every line with at least n of them until it returns true. A missing file has no
// lines. Links that lead out of the image are not followed.
func scan(root *os.Root, path string, n int, match func([]string) bool) (bool, error) {
	f, err := root.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the image's /%s: %w", path, err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return false, fmt.Errorf("the image's /%s is not a file", path)
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Split(lines.Text(), ":"); len(fields) >= n && match(fields) {
			return true, nil
		}
	}
	return false, lines.Err()
}
