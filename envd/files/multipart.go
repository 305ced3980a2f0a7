package files

import (
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"navix.sh/agentbox/envd/httperror"
)

// form writes every part of a multipart body. Parts are called "file"; a part's file name is its path unless the query
// has one, which then is for a single part.
func (u upload) form(body io.Reader, boundary, queryPath string) ([]entry, error) {
	if boundary == "" {
		return nil, httperror.New(http.StatusBadRequest, "the multipart Content-Type has no boundary")
	}
	written := []entry{}
	seen := map[string]bool{}
	parts := multipart.NewReader(body, boundary)
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF { //nolint:errorlint // wrapped, it is a body that ends before its last boundary
			return written, nil
		}
		if err != nil {
			return nil, httperror.New(http.StatusBadRequest, "error parsing multipart form: %v", err)
		}
		field, path, err := disposition(part.Header.Get("Content-Disposition"))
		if err != nil {
			return nil, err
		}
		if field != "file" {
			return nil, httperror.New(http.StatusBadRequest, "unexpected multipart form field '%s': every part must be named 'file'", field)
		}
		if queryPath != "" {
			path = queryPath
		}
		if path == "" {
			return nil, httperror.New(http.StatusBadRequest, "a part has no file name and the query has no path: one of them must name the file")
		}
		resolved, err := u.service.resolve(path, u.user)
		if err != nil {
			return nil, err
		}
		if seen[resolved] {
			return nil, httperror.New(http.StatusBadRequest, "you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", resolved)
		}
		seen[resolved] = true
		one, err := u.file(path, part)
		if err != nil {
			return nil, err
		}
		written = append(written, one)
	}
}

// disposition reads the field and the file name of a part. The name is a path and is kept whole, unlike
// multipart.Part.FileName, which strips directories.
func disposition(header string) (field, filename string, err error) {
	kind, parameters, err := mime.ParseMediaType(header)
	if err != nil || kind != "form-data" {
		return "", "", httperror.New(http.StatusBadRequest, "the Content-Disposition %q of a part cannot be read: it must be like form-data; name=\"file\"; filename=\"a/b.txt\"", header)
	}
	return parameters["name"], parameters["filename"], nil
}
