package state

import (
	"errors"
	"os"

	"navix.sh/agentbox/envd/users"
)

// upstreamUser is whom E2B's templates run as, and what older SDKs ask for by name.
const upstreamUser = "user"

// User finds the account that a request acts as. An empty name is the default user. Errors wrap users.ErrUnknown.
func (s *State) User(name string) (users.User, error) {
	if name != "" {
		found, err := users.Lookup(name)
		if name == upstreamUser && errors.Is(err, users.ErrNotPermitted) {
			return users.Current(), nil // what old SDKs always send; this sandbox has one account only
		}
		return found, err
	}
	if name = s.Settings().DefaultUser; name != "" {
		return users.Lookup(name)
	}
	if os.Geteuid() != 0 {
		return users.Current(), nil
	}
	if found, err := users.Lookup(upstreamUser); err == nil {
		return found, nil
	}
	return users.Current(), nil
}
