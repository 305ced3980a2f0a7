package client

import (
	"bufio"
	"bytes"
	"io"
	"iter"

	"navix.sh/agentbox/cli/clierr"
)

// maxEvent is the longest line of an event stream, in bytes.
const maxEvent = 8 << 20

// Events reads a text/event-stream and yields the data of each event. The sequence
// ends with the stream; an error is yielded last.
func Events(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		scan := bufio.NewScanner(r)
		scan.Buffer(make([]byte, 0, 64<<10), maxEvent)
		var data []byte
		has := false
		for scan.Scan() {
			line := bytes.TrimSuffix(scan.Bytes(), []byte("\r"))
			if len(line) == 0 {
				if has && !yield(data, nil) {
					return
				}
				data, has = nil, false
				continue
			}
			if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				if has {
					data = append(data, '\n')
				}
				data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
				has = true
			}
		}
		if err := scan.Err(); err != nil {
			yield(nil, clierr.New(clierr.Unreachable, "the stream broke off: %v", err).Because(err))
		}
	}
}
