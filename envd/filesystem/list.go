package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"

	spec "navix.sh/agentbox/envd/spec/filesystem"
)

// maxEntries bounds the memory that one listing takes.
const maxEntries = 200_000

// ListDir lists a directory down to the asked depth, in lexical order. A link at the path itself is followed, links
// below it are not.
func (s *Service) ListDir(ctx context.Context, req *connect.Request[spec.ListDirRequest]) (*connect.Response[spec.ListDirResponse], error) {
	at, err := s.resolve(req, req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	list := &spec.ListDirResponse{}
	err = at.user.Act(func() (err error) {
		list.Entries, err = at.list(ctx, max(int(req.Msg.GetDepth()), 1))
		return err
	})
	if err != nil {
		return nil, failure("path", at.path, err)
	}
	return connect.NewResponse(list), nil
}

func (t target) list(ctx context.Context, depth int) ([]*spec.EntryInfo, error) {
	info, err := os.Stat(t.path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", t.path))
	}
	root, err := filepath.EvalSymlinks(t.path)
	if err != nil {
		return nil, err
	}
	names := newNames()
	var entries []*spec.EntryInfo
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		relative, _ := filepath.Rel(root, path)
		if err != nil {
			if path == root {
				return err
			}
			return nil // it vanished, or is closed to this user: the entry is there, its content is not
		}
		if path == root {
			return nil
		}
		if len(entries) == maxEntries {
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s has more than %d entries: list a smaller depth or a directory below it", t.path, maxEntries))
		}
		entry, err := names.entry(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		entry.Path = filepath.Join(t.path, relative)
		entries = append(entries, entry)
		if d.IsDir() && strings.Count(relative, string(filepath.Separator))+1 >= depth {
			return filepath.SkipDir
		}
		return nil
	})
	return entries, err
}
