package native

import (
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/agentbox/controller/env"
)

// poolName derives a member pool's name from its env, its shape and the quota that pays for it. The name is a label of
// the pool's Pods, too.
func poolName(envName, key, quotaID string) (string, error) {
	name := env.PoolName(envName, key, quotaID)
	if len(name) > validation.LabelValueMaxLength {
		return "", badBody("make an env with a shorter name, or ask for a quota with a shorter id",
			"the pool's name would be %q, which has %d characters; at most %d are allowed", name, len(name), validation.LabelValueMaxLength)
	}
	return name, nil
}
