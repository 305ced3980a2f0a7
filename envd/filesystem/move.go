package filesystem

import "os"

// move renames; across file systems the kernel refuses, and the caller is told so.
func move(from, to string) error { return os.Rename(from, to) }
