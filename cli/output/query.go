package output

import (
	"context"
	"errors"

	"github.com/itchyny/gojq"

	"navix.sh/agentbox/cli/clierr"
)

// Query is a compiled --jq expression.
type Query struct{ code *gojq.Code }

// ParseQuery compiles expr, so that a mistake in it is found before anything is sent.
// The expression sees no environment and no files.
func ParseQuery(expr string) (*Query, error) {
	parsed, err := gojq.Parse(expr)
	if err == nil {
		var code *gojq.Code
		if code, err = gojq.Compile(parsed); err == nil {
			return &Query{code}, nil
		}
	}
	return nil, clierr.New(clierr.InvalidValue, "--jq %q is no jq expression: %v", expr, err).Because(err).
		Hint(`an expression looks like '.items[].name'`)
}

// Run yields every result of the query on v.
func (q *Query) Run(ctx context.Context, v any, yield func(any) error) error {
	results := q.code.RunWithContext(ctx, v)
	for {
		result, ok := results.Next()
		if !ok {
			return nil
		}
		if err, failed := result.(error); failed {
			var halt *gojq.HaltError
			if errors.As(err, &halt) && halt.Value() == nil {
				return nil
			}
			if ctx.Err() != nil {
				return clierr.New(clierr.Interrupted, "interrupted").Because(err)
			}
			return clierr.New(clierr.QueryFailed, "the --jq expression does not fit the result: %v", err).Because(err).
				Hint("leave --jq out to see the result's shape")
		}
		if err := yield(result); err != nil {
			return err
		}
	}
}
