package image

import (
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"navix.sh/agentbox/controller/embedded/runtime"
)

// treeBuilder writes a file tree of the agent's own making, owned by the sandboxes' users, and sums up its content.
type treeBuilder struct {
	root string
	ids  runtime.IDs
	sum  hash.Hash
}

func (b *treeBuilder) own(path string, id int) error {
	if b.ids.Single() {
		return nil
	}
	return os.Lchown(filepath.Join(b.root, path), b.ids.Base+id, b.ids.Base+id)
}

func (b *treeBuilder) dir(path string, mode os.FileMode, id int) error {
	full := filepath.Join(b.root, path)
	if err := os.Mkdir(full, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := b.own(path, id); err != nil {
		return err
	}
	fmt.Fprintf(b.sum, "d %q %o %d\n", path, mode, id)
	return os.Chmod(full, mode)
}

// parents makes what is missing above path.
func (b *treeBuilder) parents(path string) error {
	dir := filepath.Dir(path)
	if dir == "." {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(b.root, dir)); err == nil {
		return nil
	}
	if err := b.parents(dir); err != nil {
		return err
	}
	return b.dir(dir, 0o755, 0)
}

func (b *treeBuilder) link(path, to string) error {
	fmt.Fprintf(b.sum, "l %q %q\n", path, to)
	if err := os.Symlink(to, filepath.Join(b.root, path)); err != nil {
		return err
	}
	return b.own(path, 0)
}

func (b *treeBuilder) file(path string, content io.Reader, mode os.FileMode, id int) error {
	fmt.Fprintf(b.sum, "f %q %o %d\n", path, mode, id)
	f, err := os.OpenFile(filepath.Join(b.root, path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.MultiWriter(f, b.sum), content); err != nil {
		f.Close()
		return err
	}
	if err := f.Chmod(mode); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return b.own(path, id)
}
