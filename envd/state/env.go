package state

import (
	"maps"
	"os"
	"strings"
)

// defaultPath serves containers whose image sets no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// notInherited are variables that describe envd's own process and not the sandbox.
var notInherited = map[string]bool{
	"HOME": true, "USER": true, "LOGNAME": true, "PWD": true, "OLDPWD": true, "SHLVL": true, "_": true,
}

// TemplateEnv returns the variables that the sandbox's image and template set: envd's own environment, less what
// describes envd itself. With inherit false only PATH is kept, as in upstream's virtual machines.
func TemplateEnv(environ []string, inherit bool) map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, entry := range environ {
		key, value, found := strings.Cut(entry, "=")
		if !found || notInherited[key] || strings.HasPrefix(key, "ENVD_") {
			continue
		}
		if inherit || key == "PATH" {
			env[key] = value
		}
	}
	return env
}

// Globals are the variables that GET /envs reports and every process gets: those of /init and the sandbox's marks.
func (s *State) Globals() map[string]string {
	settings := s.Settings()
	env := map[string]string{"E2B_SANDBOX": "true"}
	if settings.SandboxID != "" {
		env["E2B_SANDBOX_ID"] = settings.SandboxID
	}
	maps.Copy(env, settings.CAEnv)
	maps.Copy(env, settings.EnvVars)
	return env
}

// TakeSecret reads a variable and removes it from envd's environment, so that no child sees it.
func TakeSecret(key string) string {
	value := os.Getenv(key)
	os.Unsetenv(key)
	return value
}
