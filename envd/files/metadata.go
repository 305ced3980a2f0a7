package files

import (
	"errors"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/xattr"
)

const (
	metadataHeader = "X-Metadata-"
	// maxMetadataKey is what is left of the kernel's 255 bytes behind the prefix user.e2b.
	maxMetadataKey = 246
	maxMetadata    = 4096
)

// requestMetadata reads the X-Metadata-<key> headers; keys come out in lower case.
func requestMetadata(header http.Header) (map[string]string, error) {
	metadata := map[string]string{}
	total := 0
	for name, values := range header {
		key, found := strings.CutPrefix(name, metadataHeader)
		if !found {
			continue
		}
		key, value := strings.ToLower(key), strings.Join(values, ", ")
		switch {
		case key == "" || len(key) > maxMetadataKey:
			return nil, httperror.New(http.StatusBadRequest, "the metadata key %q has %d bytes: 1 to %d are allowed", key, len(key), maxMetadataKey)
		case !printable(key) || !printable(value):
			return nil, httperror.New(http.StatusBadRequest, "the metadata %q holds something other than printable ASCII", key)
		}
		total += len(key) + len(value)
		metadata[key] = value
	}
	if total > maxMetadata {
		return nil, httperror.New(http.StatusBadRequest, "the metadata has %d bytes: keys and values together may have %d", total, maxMetadata)
	}
	return metadata, nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// replaceMetadata makes metadata the whole set of an open file.
func replaceMetadata(file *os.File, metadata map[string]string) error {
	err := xattr.Replace(int(file.Fd()), metadata)
	if len(metadata) == 0 && (errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM)) {
		return nil // where nothing can be kept, nothing has to be cleared
	}
	return err
}
