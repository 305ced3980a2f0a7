// Package xattr keeps the metadata of files in their extended attributes, as E2B does.
package xattr

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix is what E2B puts before a key.
const prefix = "user.e2b."

// Replace makes metadata the whole set of an open file.
func Replace(fd int, metadata map[string]string) error {
	names, err := list(func(buffer []byte) (int, error) { return unix.Flistxattr(fd, buffer) })
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, kept := metadata[strings.TrimPrefix(name, prefix)]; kept {
			continue
		}
		if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return err
		}
	}
	for key, value := range metadata {
		if err := unix.Fsetxattr(fd, prefix+key, []byte(value), 0); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// Get reads the metadata of path, following links. What cannot be read is left out.
func Get(path string) map[string]string {
	names, err := list(func(buffer []byte) (int, error) { return unix.Listxattr(path, buffer) })
	if err != nil || len(names) == 0 {
		return nil
	}
	metadata := map[string]string{}
	for _, name := range names {
		value, err := read(func(buffer []byte) (int, error) { return unix.Getxattr(path, name, buffer) })
		if err == nil {
			metadata[strings.TrimPrefix(name, prefix)] = string(value)
		}
	}
	return metadata
}

// list returns the names with our prefix.
func list(call func([]byte) (int, error)) ([]string, error) {
	buffer, err := read(call)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(string(buffer), "\x00") {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}

// read asks for the size, then for the value, and again when it grew in between.
func read(call func([]byte) (int, error)) ([]byte, error) {
	for {
		size, err := call(nil)
		if err != nil || size == 0 {
			return nil, err
		}
		buffer := make([]byte, size)
		n, err := call(buffer)
		if errors.Is(err, unix.ERANGE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buffer[:n], nil
	}
}
