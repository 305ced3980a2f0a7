package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
)

const (
	// sampleSize is how much of a file tells whether compressing it pays. What is no longer is not sampled.
	sampleSize = 64 << 10
	// sendSize is how much compressed data is handed on at once. The compressor yields a few hundred bytes at a time,
	// and each piece would travel as a chunk of its own that wakes the gateway and the client.
	sendSize = 128 << 10
)

// settle chooses between gzip, which the client takes, and identity: data that does not shrink is sent as it is, if the
// client takes that too. The content is left at its beginning.
func settle(header http.Header, content io.ReadSeeker) (string, error) {
	if weight(acceptEncoding(header), identityEncoding) == 0 {
		return gzipEncoding, nil
	}
	sample := make([]byte, sampleSize+1)
	n, err := io.ReadFull(content, sample)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if n > sampleSize && !shrinks(sample) {
		return identityEncoding, nil
	}
	return gzipEncoding, nil
}

// shrinks reports whether compressing saves an eighth or more.
func shrinks(data []byte) bool {
	var packed bytes.Buffer
	if err := pack(&packed, bytes.NewReader(data)); err != nil {
		return true
	}
	return packed.Len() <= len(data)-len(data)/8
}

// pack compresses content into w. Speed comes first: the sandbox's processor is its user's.
func pack(w io.Writer, content io.Reader) error {
	sent := bufio.NewWriterSize(w, sendSize)
	compressed, err := gzip.NewWriterLevel(sent, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(compressed, content); err != nil {
		return err
	}
	if err := compressed.Close(); err != nil {
		return err
	}
	return sent.Flush()
}
