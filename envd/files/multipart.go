package files

import (
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

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

// disposition reads the field and the file name of a part. The name is a path and is kept whole: multipart.Part.FileName
// strips directories, and mime.ParseMediaType takes a backslash for the beginning of an escape. A form as browsers and
// the JavaScript SDK write it has %22, %0D and %0A for what cannot stand in the header and escapes nothing else, so such
// a name cannot be told from one that really has these letters: it is taken as it stands.
func disposition(header string) (field, filename string, err error) {
	kind, rest, _ := strings.Cut(header, ";")
	parameters := map[string]string{}
	ok := strings.EqualFold(strings.TrimSpace(kind), "form-data")
	for rest = strings.TrimSpace(rest); ok && rest != ""; {
		var name, value string
		name, value, ok = strings.Cut(rest, "=")
		if ok {
			name = strings.ToLower(strings.TrimSpace(name))
			_, twice := parameters[name]
			parameters[name], rest, ok = parameterValue(strings.TrimSpace(value))
			ok = ok && !twice
		}
	}
	filename = parameters["filename"]
	if extended, found := parameters["filename*"]; ok && found {
		_, decoded, _ := mime.ParseMediaType("form-data; filename*=" + extended)
		filename, ok = decoded["filename"]
	}
	if !ok {
		return "", "", httperror.New(http.StatusBadRequest, "the Content-Disposition %q of a part cannot be read: it must be like form-data; name=\"file\"; filename=\"a/b.txt\"", header)
	}
	return parameters["name"], filename, nil
}

// parameterValue splits the value that text begins with from the parameters behind it. In quotes, \\ and \" are what
// some clients write for one letter; any other backslash stands for itself, and so does one before the last quote.
func parameterValue(text string) (value, rest string, ok bool) {
	quoted, isQuoted := strings.CutPrefix(text, `"`)
	if !isQuoted {
		value, rest, _ = strings.Cut(text, ";")
		return strings.TrimSpace(value), strings.TrimSpace(rest), true
	}
	var b strings.Builder
	for i := 0; i < len(quoted); i++ {
		c := quoted[i]
		if c == '"' {
			rest = strings.TrimSpace(quoted[i+1:])
			after, more := strings.CutPrefix(rest, ";")
			return b.String(), strings.TrimSpace(after), more || rest == ""
		}
		if next := quoted[i+1:]; c == '\\' && next != "" && (next[0] == '\\' || next[0] == '"' && strings.TrimSpace(next[1:]) != "") {
			i++
			c = quoted[i]
		}
		b.WriteByte(c)
	}
	return "", "", false
}
