package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"navix.sh/agentbox/envd/state"
)

// defaultPort is where the E2B SDKs look for envd.
const defaultPort = 49983

// options are the flags of the daemon. Each has an environment variable ENVD_<NAME>; the flag wins.
type options struct {
	listen      string
	port        uint
	socket      string
	requireInit bool
	tokenFile   string
	inheritEnv  bool
	setClock    bool
	caFile      string
	// initToken comes from ENVD_INIT_TOKEN or tokenFile, never from a flag: arguments are public.
	initToken string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("envd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.listen, "listen", "", "`address` to listen on; empty is every address, IPv4 and IPv6")
	flags.UintVar(&o.port, "port", defaultPort, "TCP `port`; 0 lets the kernel choose and prints the choice")
	flags.StringVar(&o.socket, "socket", "", "also listen on a unix socket at this `path`")
	flags.BoolVar(&o.requireInit, "require-init", false, "serve clients only once POST /init has armed the sandbox")
	flags.StringVar(&o.tokenFile, "init-token-file", "", "`file` with the token that POST /init must carry; it is removed after reading where that is allowed")
	flags.BoolVar(&o.inheritEnv, "inherit-env", true, "give processes the variables that envd was started with")
	flags.BoolVar(&o.setClock, "set-clock", false, "let POST /init set the system clock")
	flags.StringVar(&o.caFile, "ca-file", "/run/envd/ca-certificates.crt", "`file` to write the CA bundle of POST /init to")
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	if err := fromEnvironment(flags); err != nil {
		return o, err
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: envd takes flags, or one of: install, version", flags.Arg(0))
	}
	if o.port > 0xffff {
		return o, fmt.Errorf("--port %d is no port: give 0 to 65535", o.port)
	}
	return o, o.readToken()
}

const usage = `envd runs inside a sandbox and serves its processes and files.

usage: envd [flags]          serve
       envd install PATH     copy this binary to PATH, all or nothing
       envd version          print the version whose protocol is spoken

Each flag can be set by ENVD_<NAME>, as in ENVD_REQUIRE_INIT=true. The init token is read
from ENVD_INIT_TOKEN, or from --init-token-file.

flags:
`

// fromEnvironment applies ENVD_<NAME> before the arguments are parsed.
func fromEnvironment(flags *flag.FlagSet) (err error) {
	flags.VisitAll(func(f *flag.Flag) {
		key := "ENVD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, found := os.LookupEnv(key)
		if strings.HasPrefix(value, "tcp://") {
			return // Kubernetes says so of a Service that is called envd
		}
		if found && err == nil {
			if setErr := f.Value.Set(value); setErr != nil {
				err = fmt.Errorf("%s=%s cannot be used: %w", key, strconv.Quote(value), setErr)
			}
		}
	})
	return err
}

func (o *options) readToken() error {
	o.initToken = state.TakeSecret("ENVD_INIT_TOKEN")
	if o.tokenFile == "" {
		return nil
	}
	if o.initToken != "" {
		return errors.New("both ENVD_INIT_TOKEN and --init-token-file are set: give one")
	}
	text, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return fmt.Errorf("--init-token-file: %w", err)
	}
	_ = os.Remove(o.tokenFile) // a mounted secret cannot be removed; its mode must protect it
	if o.initToken = strings.TrimSpace(string(text)); o.initToken == "" {
		return fmt.Errorf("--init-token-file: %s is empty: write the token into it", o.tokenFile)
	}
	return nil
}
