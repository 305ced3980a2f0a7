package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"navix.sh/agentbox/envd/httperror"
	"navix.sh/agentbox/envd/state"
	"navix.sh/agentbox/envd/trust"
)

// maxInit bounds the body of /init.
const maxInit = 8 << 20

// initRequest is the body of POST /init. Every field replaces what an earlier /init set, the absent ones too.
type initRequest struct {
	SandboxID      string            `json:"sandboxId"`
	LifecycleID    string            `json:"lifecycleID"`
	AccessToken    string            `json:"accessToken"`
	EnvVars        map[string]string `json:"envVars"`
	Timestamp      *time.Time        `json:"timestamp"`
	DefaultUser    string            `json:"defaultUser"`
	DefaultWorkdir string            `json:"defaultWorkdir"`
	CABundle       string            `json:"caBundle"`
	VolumeMounts   []json.RawMessage `json:"volumeMounts"`
	HyperloopIP    string            `json:"hyperloopIP"`
}

// serveInit arms the sandbox.
func (i *internal) serveInit(w http.ResponseWriter, r *http.Request) {
	if err := i.arm(r); err != nil {
		httperror.Write(w, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Envd-Version", Version)
	w.WriteHeader(http.StatusNoContent)
}

func (i *internal) arm(r *http.Request) error {
	if i.InitToken != "" && !i.fromPlatform(r) {
		return httperror.New(http.StatusUnauthorized, "/init is the platform's: send its token in %s", initHeader)
	}
	var body initRequest
	err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxInit)).Decode(&body)
	if err != nil && !errors.Is(err, io.EOF) {
		return httperror.New(http.StatusBadRequest, "the body of /init cannot be read: %v", err)
	}
	if !i.mayInit(r, body.AccessToken) {
		return httperror.New(http.StatusUnauthorized, "access token already set: send it in X-Access-Token to change the settings")
	}
	if err := body.check(); err != nil {
		return err
	}
	settings := state.Settings{
		SandboxID:      body.SandboxID,
		LifecycleID:    body.LifecycleID,
		AccessToken:    body.AccessToken,
		EnvVars:        body.EnvVars,
		DefaultUser:    body.DefaultUser,
		DefaultWorkdir: body.DefaultWorkdir,
	}
	if body.DefaultUser != "" {
		if _, err := i.State.User(body.DefaultUser); err != nil {
			return httperror.New(http.StatusBadRequest, "defaultUser: %v", err)
		}
	}
	if settings.CAEnv, err = trust.Install(i.CAFile, body.CABundle); err != nil {
		if errors.Is(err, trust.ErrMalformed) {
			return httperror.New(http.StatusBadRequest, "caBundle: %v", err)
		}
		return fmt.Errorf("caBundle: %w", err)
	}
	if i.SetClock && body.Timestamp != nil {
		now := unix.NsecToTimeval(body.Timestamp.UnixNano())
		_ = unix.Settimeofday(&now) // where it is not permitted, the clock is somebody else's to keep
	}
	i.State.Arm(settings)
	return nil
}

// check refuses what could not be done or would fail at every later request.
func (b initRequest) check() error {
	if len(b.VolumeMounts) > 0 {
		return httperror.New(http.StatusNotImplemented, "volumeMounts is not implemented: declare the volumes in the sandbox's Pod")
	}
	if b.HyperloopIP != "" {
		return httperror.New(http.StatusNotImplemented, "hyperloopIP is not implemented: there is no hyperloop service here")
	}
	for key, value := range b.EnvVars {
		if key == "" || strings.ContainsAny(key, "=\x00") || strings.ContainsRune(value, 0) {
			return httperror.New(http.StatusBadRequest, "envVars: %q cannot be set: a name is not empty and holds no '=', and neither name nor value holds a NUL byte", key)
		}
	}
	return nil
}
