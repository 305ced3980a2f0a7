package files

import (
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"

	"navix.sh/agentbox/envd/access"
	"navix.sh/agentbox/envd/httperror"
)

// Download serves GET /files.
func (s *Service) Download(w http.ResponseWriter, r *http.Request) {
	if err := s.download(w, r); err != nil {
		httperror.Write(w, err)
	}
}

func (s *Service) download(w http.ResponseWriter, r *http.Request) error {
	query, user, err := s.open(r, access.Read)
	if err != nil {
		return err
	}
	path, err := s.resolve(query.Get("path"), user)
	if err != nil {
		return err
	}
	var file *os.File
	var info fs.FileInfo
	var content io.ReadSeeker
	err = user.Act(func() (err error) {
		if file, info, err = openRegular(path, os.O_RDONLY); err != nil {
			return err
		}
		content, err = contents(path, info, file)
		return err
	})
	if file != nil {
		defer file.Close()
	}
	if err != nil {
		return err
	}

	header := w.Header()
	header.Add("Vary", "Accept-Encoding")
	encoding, err := negotiate(r.Header)
	if err != nil {
		return err
	}
	if encoding == gzipEncoding {
		if encoding, err = settle(r.Header, content); err != nil {
			return failure(path, err)
		}
	}
	name := filepath.Base(path)
	header.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": name}))
	if encoding != gzipEncoding {
		if end, err := content.Seek(0, io.SeekEnd); err == nil && end == 0 {
			r.Header.Del("Range") // of nothing there is no part, and ServeContent would send one
		}
		http.ServeContent(w, r, name, info.ModTime(), content)
		return nil
	}
	header.Set("Content-Type", typeByName(name))
	header.Set("Content-Encoding", gzipEncoding)
	if err := pack(w, content); err != nil {
		panic(http.ErrAbortHandler) // the status is out; only a broken body can still say that it failed
	}
	return nil
}

func typeByName(name string) string {
	if byName := mime.TypeByExtension(filepath.Ext(name)); byName != "" {
		return byName
	}
	return "application/octet-stream"
}
