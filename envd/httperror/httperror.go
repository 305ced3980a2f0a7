// Package httperror writes the errors of envd's HTTP routes in E2B's shape.
package httperror

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Error is an HTTP status and what the client is told.
type Error struct {
	Status  int
	Message string
}

func (e *Error) Error() string { return e.Message }

// New words an error for a client.
func New(status int, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Write answers with err: an *Error as it is, anything else as 500.
func Write(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var known *Error
	if errors.As(err, &known) {
		status = known.Status
	}
	header := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Content-Disposition", "Etag", "Last-Modified"} {
		header.Del(name) // they described the answer that did not come about
	}
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, err.Error()})
}
