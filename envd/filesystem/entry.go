package filesystem

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"google.golang.org/protobuf/types/known/timestamppb"

	spec "navix.sh/agentbox/envd/spec/filesystem"
	"navix.sh/agentbox/envd/xattr"
)

// describe builds the entry of a path with the rights of the user.
func (t target) describe() (entry *spec.EntryInfo, err error) {
	err = t.user.Act(func() error {
		entry, err = newNames().entry(t.path)
		return err
	})
	return entry, err
}

// names remembers the names of owners and groups for one answer.
type names struct{ users, groups map[uint32]string }

func newNames() names { return names{map[uint32]string{}, map[uint32]string{}} }

// entry describes path without following a link at its end; a link also tells the type and path of what it leads to.
func (n names) entry(path string) (*spec.EntryInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	entry := &spec.EntryInfo{
		Name:         filepath.Base(path),
		Type:         fileType(info.Mode()),
		Path:         path,
		Size:         info.Size(),
		Mode:         uint32(info.Mode().Perm()),
		Permissions:  info.Mode().String(),
		ModifiedTime: timestamppb.New(info.ModTime()),
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		entry.Owner, entry.Group = n.owner(stat.Uid), n.group(stat.Gid)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		n.follow(entry)
	}
	if entry.Type != spec.FileType_FILE_TYPE_UNSPECIFIED {
		entry.Metadata = xattr.Get(path)
	}
	return entry, nil
}

// follow fills in where a link leads; a link that leads nowhere has no type and keeps what it says.
func (n names) follow(entry *spec.EntryInfo) {
	entry.Type = spec.FileType_FILE_TYPE_UNSPECIFIED
	leads, err := filepath.EvalSymlinks(entry.Path)
	if err != nil {
		leads, err = os.Readlink(entry.Path)
		if err == nil {
			entry.SymlinkTarget = &leads
		}
		return
	}
	entry.SymlinkTarget = &leads
	if info, err := os.Lstat(leads); err == nil {
		entry.Type = fileType(info.Mode())
	}
}

func fileType(mode fs.FileMode) spec.FileType {
	switch {
	case mode.IsRegular():
		return spec.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		return spec.FileType_FILE_TYPE_DIRECTORY
	case mode&fs.ModeSymlink != 0:
		return spec.FileType_FILE_TYPE_SYMLINK
	}
	return spec.FileType_FILE_TYPE_UNSPECIFIED
}

func (n names) owner(uid uint32) string {
	return named(n.users, uid, func(id string) (string, error) {
		found, err := user.LookupId(id)
		if err != nil {
			return "", err
		}
		return found.Username, nil
	})
}

func (n names) group(gid uint32) string {
	return named(n.groups, gid, func(id string) (string, error) {
		found, err := user.LookupGroupId(id)
		if err != nil {
			return "", err
		}
		return found.Name, nil
	})
}

// named is the number itself where it has no name.
func named(known map[uint32]string, id uint32, lookup func(string) (string, error)) string {
	if name, found := known[id]; found {
		return name
	}
	number := strconv.FormatUint(uint64(id), 10)
	name, err := lookup(number)
	if err != nil {
		name = number
	}
	known[id] = name
	return name
}
