package image

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
)

// keychain holds the credentials of a Pod's pull secrets.
type keychain map[string]authn.AuthConfig

// Keychain reads pull secrets of the types kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg.
func Keychain(secrets []*corev1.Secret) (authn.Keychain, error) {
	k := keychain{}
	for _, s := range secrets {
		var file struct {
			Auths map[string]authn.AuthConfig `json:"auths"`
		}
		var err error
		switch {
		case s.Data[corev1.DockerConfigJsonKey] != nil:
			err = json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &file)
		case s.Data[corev1.DockerConfigKey] != nil:
			err = json.Unmarshal(s.Data[corev1.DockerConfigKey], &file.Auths)
		default:
			err = fmt.Errorf("it has neither the key %s nor %s", corev1.DockerConfigJsonKey, corev1.DockerConfigKey)
		}
		if err != nil {
			// The error of the decoder may quote what it read, so it is not passed on.
			if !strings.HasPrefix(err.Error(), "it has neither") {
				err = fmt.Errorf("its content is not a registry configuration")
			}
			return nil, fmt.Errorf("pull secret %s: %w", s.Name, err)
		}
		for host, auth := range file.Auths {
			k[registryKey(host)] = auth
		}
	}
	return k, nil
}

// registryKey brings the forms in which registries are written ("https://index.docker.io/v1/") to one.
func registryKey(s string) string {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "https://"), "http://")
	s = strings.TrimSuffix(s, "/")
	s = strings.TrimSuffix(strings.TrimSuffix(s, "/v1"), "/v2")
	if s == "docker.io" || s == "registry-1.docker.io" {
		return name.DefaultRegistry
	}
	return s
}

// Resolve implements authn.Keychain: the longest entry that is the resource or a parent of it counts.
func (k keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	for key := target.String(); key != ""; {
		if auth, ok := k[key]; ok {
			return authn.FromConfig(auth), nil
		}
		i := strings.LastIndexByte(key, '/')
		if i < 0 {
			break
		}
		key = key[:i]
	}
	if auth, ok := k[target.RegistryStr()]; ok {
		return authn.FromConfig(auth), nil
	}
	return authn.Anonymous, nil
}
