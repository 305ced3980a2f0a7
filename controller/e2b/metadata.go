package e2b

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"navix.sh/agentbox/controller/claim"
)

// Metadata keys under this prefix tell the platform something. They are consumed: a sandbox does not carry them.
const reservedPrefix = "agentbox.scitix.ai/"

// idleTimeoutKey holds seconds and counts with `timeout: -1`, for callers that have no hard lifetime to give. Other
// platforms show it in the sandbox's metadata, so it stays there.
const idleTimeoutKey = "idleTimeout"

// directives is what reserved metadata keys ask for.
type directives struct {
	Image          string
	ScalingGroup   string
	StartupTimeout time.Duration
	TimeoutMode    claim.TimeoutMode
}

// reservedKeys reads each key below reservedPrefix that has an effect.
var reservedKeys = map[string]func(d *directives, value string) error{
	"image": func(d *directives, value string) error {
		if strings.TrimSpace(value) == "" {
			return badRequest("metadata %simage is empty: name an image or leave the key out", reservedPrefix)
		}
		d.Image = strings.TrimSpace(value)
		return nil
	},
	"scaling-group": func(d *directives, value string) error {
		if d.ScalingGroup = strings.TrimSpace(value); d.ScalingGroup == "" {
			return badRequest("metadata %sscaling-group is empty: name a group or leave the key out", reservedPrefix)
		}
		return nil
	},
	"startup-timeout": func(d *directives, value string) (err error) {
		d.StartupTimeout, err = secondsText(reservedPrefix+"startup-timeout", value)
		return err
	},
	"timeout-mode": func(d *directives, value string) error {
		switch mode := claim.TimeoutMode(strings.TrimSpace(value)); mode {
		case claim.TimeoutIdle, claim.TimeoutAbsolute:
			d.TimeoutMode = mode
			return nil
		default:
			return badRequest("metadata %stimeout-mode is %q: want %q (counts from the last activity) or %q (counts from create, as E2B does)",
				reservedPrefix, value, claim.TimeoutIdle, claim.TimeoutAbsolute)
		}
	},
}

// refusedKeys are those of other platforms, which are refused with the reason.
var refusedKeys = map[string]func(d *directives, value string) error{
	"no-wait": func(_ *directives, value string) error {
		if value == "" || value == "false" {
			return nil
		}
		return badRequest("metadata %sno-wait is not supported: create answers when the sandbox is ready; call it without waiting for its answer instead", reservedPrefix)
	},
	"allow-private-networks": func(_ *directives, value string) error {
		return badRequest("metadata %sallow-private-networks is not supported: there is no egress control yet, so there is nothing to allow", reservedPrefix)
	},
}

// splitMetadata takes the reserved keys out of a create's metadata.
func splitMetadata(in map[string]string) (directives, map[string]string, error) {
	var d directives
	out := make(map[string]string, len(in))
	for _, key := range slices.Sorted(maps.Keys(in)) {
		value := in[key]
		name, reserved := strings.CutPrefix(key, reservedPrefix)
		if !reserved {
			out[key] = value
			continue
		}
		read := reservedKeys[name]
		if read == nil {
			read = refusedKeys[name]
		}
		if read == nil {
			return d, nil, badRequest("metadata %q: keys under %s are the platform's; it knows %s", key, reservedPrefix,
				strings.Join(slices.Sorted(maps.Keys(reservedKeys)), ", "))
		}
		if err := read(&d, value); err != nil {
			return d, nil, err
		}
	}
	return d, out, nil
}

func secondsText(name, value string) (time.Duration, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return 0, badRequest("metadata %s is %q: want a whole number of seconds", name, value)
	}
	return seconds("metadata "+name, n)
}

// parseMetadataFilter reads the metadata query parameter. The SDKs percent-encode keys and values, form-encode the
// pairs and encode the result as a query value; the query's own decoding has been done by the caller.
func parseMetadataFilter(value string) (map[string]string, error) {
	if value == "" {
		return nil, nil
	}
	form, err := url.QueryUnescape(value)
	if err != nil {
		return nil, badMetadata(value)
	}
	filter := map[string]string{}
	for pair := range strings.SplitSeq(form, "&") {
		key, val, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, badMetadata(value)
		}
		key, keyErr := url.QueryUnescape(key)
		val, valErr := url.QueryUnescape(val)
		if keyErr != nil || valErr != nil || key == "" {
			return nil, badMetadata(value)
		}
		if before, twice := filter[key]; twice && before != val {
			return nil, badRequest("metadata filter names %q twice with different values: nothing can match both", key)
		}
		filter[key] = val
	}
	return filter, nil
}

func badMetadata(value string) *apiError {
	return badRequest("validation error: metadata=%q: want key=value pairs joined by &, with keys and values percent-encoded", value)
}
