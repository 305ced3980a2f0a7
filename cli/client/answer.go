package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/text"
)

// success checks that a 2xx answer is the API's: JSON, or nothing at all.
func success(answer *http.Response, body []byte, id string) (*Response, error) {
	body = bytes.TrimSpace(body)
	if len(body) > 0 && !(isJSON(answer) && json.Valid(body)) {
		return nil, notTheAPI(answer, body, id)
	}
	return &Response{Status: answer.StatusCode, Header: answer.Header, Body: body, RequestID: id}, nil
}

// failure turns an answer that is no success into an error.
func failure(answer *http.Response, body []byte, id string) error {
	status := answer.StatusCode
	var sent struct {
		Error     json.RawMessage `json:"error"`
		ErrorCode string          `json:"errorCode"`
		Detail    json.RawMessage `json:"detail"`
		Hint      json.RawMessage `json:"hint"`
		RequestID string          `json:"requestId"`
	}
	if !isJSON(answer) || json.Unmarshal(body, &sent) != nil || len(sent.Error) == 0 {
		return foreignFailure(answer, body, id)
	}
	code := sent.ErrorCode
	if code == "" {
		code = clierr.CodeOfStatus(status)
	}
	e := clierr.New(code, "%s", plain(sent.Error))
	if clierr.ExitCode(code) == clierr.ExitFailure {
		e.Exit = clierr.ExitCode(clierr.CodeOfStatus(status))
	}
	e.Status, e.RequestID = status, id
	if sent.RequestID != "" {
		e.RequestID = sent.RequestID
	}
	for _, line := range lines(sent.Hint) {
		e.Hint(line)
	}
	if code == clierr.ApprovalRequired || status == http.StatusPreconditionRequired {
		e.Exit = clierr.ExitApproval
		e.Approval = &clierr.Approval{}
		_ = json.Unmarshal(sent.Detail, e.Approval) // a detail in another form leaves it empty
		return e
	}
	if code == clierr.ForbiddenForAgent {
		var detail clierr.Approval
		if json.Unmarshal(sent.Detail, &detail) == nil && detail.URL != "" {
			e.Hint("a person does it here: " + detail.URL)
		}
		return e
	}
	if detail := plain(sent.Detail); detail != "" && detail != "{}" && !strings.Contains(e.Message, detail) {
		e.Message += ": " + detail
	}
	return e
}

// foreignFailure is an error answer that the API did not write: a proxy's, or that of some other service.
func foreignFailure(answer *http.Response, body []byte, id string) error {
	code := clierr.CodeOfStatus(answer.StatusCode)
	switch code {
	case clierr.Unauthenticated, clierr.Forbidden, clierr.RateLimited, clierr.Capacity, clierr.Timeout, clierr.ServerError, clierr.NotImplemented:
	default:
		return notTheAPI(answer, body, id)
	}
	e := clierr.New(code, "the server answered %d %s with %s", answer.StatusCode, http.StatusText(answer.StatusCode), describe(answer, body))
	e.Status, e.RequestID = answer.StatusCode, id
	return e
}

func notTheAPI(answer *http.Response, body []byte, id string) error {
	u := answer.Request.URL
	e := clierr.New(clierr.BadResponse, "%s answered %d with %s, which is not this API", u.Scheme+"://"+u.Host+u.Path, answer.StatusCode, describe(answer, body)).
		Hint("is the address right? A login page or a proxy in front of the API looks like this", "abx context show")
	e.Status, e.RequestID = answer.StatusCode, id
	return e
}

func isJSON(answer *http.Response) bool {
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// describe says what a foreign body is, with its beginning.
func describe(answer *http.Response, body []byte) string {
	kind := answer.Header.Get("Content-Type")
	if kind == "" {
		kind = "no content type"
	}
	begin := strings.Join(strings.Fields(string(bytes.ToValidUTF8(body, []byte("?")))), " ")
	if utf8.RuneCountInString(begin) > 120 {
		begin = string([]rune(begin)[:120]) + "…"
	}
	if begin == "" {
		return text.Line(kind) + " and no body"
	}
	return text.Line(fmt.Sprintf("%s (%s)", kind, begin))
}

// plain is a JSON string's value, or the JSON itself.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if len(raw) == 0 || string(raw) == "null" || json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

// lines reads a hint, which is a string or a list of them.
func lines(raw json.RawMessage) []string {
	var many []string
	if json.Unmarshal(raw, &many) == nil {
		return many
	}
	if one := plain(raw); one != "" {
		return []string{one}
	}
	return nil
}
