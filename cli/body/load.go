// Package body reads the file of a write and checks it against the schema that the
// registry carries, before anything is sent.
package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"navix.sh/agentbox/cli/clierr"
	"navix.sh/agentbox/cli/output"
)

// maxSize is the longest file that is read, in bytes; no body comes near it.
const maxSize = 4 << 20

// Load reads one object from path, or from stdin when path is "-". JSON keeps its
// numbers digit for digit; everything else is read as YAML, of which one document is
// expected and a key may not appear twice.
func Load(path string, stdin io.Reader) (map[string]any, error) {
	name := path
	if path == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(path)
		if err != nil {
			return nil, fail(name, "cannot be read: %v", err).Because(err)
		}
		defer f.Close()
		stdin = f
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxSize+1))
	if err != nil {
		return nil, fail(name, "cannot be read: %v", err).Because(err)
	}
	if len(data) > maxSize {
		return nil, fail(name, "is larger than %d MiB", maxSize>>20)
	}
	return parse(name, data)
}

func parse(name string, data []byte) (map[string]any, error) {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	if len(data) == 0 {
		return nil, fail(name, "is empty").Hint("start from what --editable prints")
	}
	var value any
	var err error
	if data[0] == '{' || data[0] == '[' {
		value, err = decodeJSON(data)
	} else {
		value, err = decodeYAML(data)
	}
	if err != nil {
		return nil, fail(name, "%v", err).Because(err)
	}
	value = plainNumbers(value)
	object, ok := value.(map[string]any)
	if !ok {
		return nil, fail(name, "holds %s and not an object", kindOf(value))
	}
	return object, nil
}

func decodeJSON(data []byte) (any, error) {
	value, err := output.Decode(data)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		// A flow mapping that YAML allows and JSON does not, such as {name: demo}.
		if v, yamlErr := decodeYAML(data); yamlErr == nil {
			return v, nil
		}
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return nil, fmt.Errorf("is not JSON, line %d: %w", line, err)
	}
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return value, repeatedKey(d, "")
}

// repeatedKey refuses an object with a key twice, of which a decoder silently keeps the last. d stands before a valid value.
func repeatedKey(d *json.Decoder, path string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := 0; (token == json.Delim('{') || token == json.Delim('[')) && d.More(); i++ {
		at := fmt.Sprintf("%s[%d]", path, i)
		if token == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return err
			}
			at = join(path, fmt.Sprint(key))
			if seen[at] {
				return fmt.Errorf("has %s twice; keep one of them", at)
			}
			seen[at] = true
		}
		if err := repeatedKey(d, at); err != nil {
			return err
		}
	}
	if token == json.Delim('{') || token == json.Delim('[') {
		_, err = d.Token() // the closing one
	}
	return err
}

// plainNumbers writes whole numbers in digits: 1e3 and 3.0 are integers in JSON, and servers refuse them as such.
func plainNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, x := range v {
			v[key] = plainNumbers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = plainNumbers(x)
		}
	case json.Number:
		return plainNumber(v)
	}
	return value
}

func plainNumber(n json.Number) json.Number {
	_, exponent, _ := strings.Cut(strings.ToLower(n.String()), "e")
	if !strings.ContainsAny(n.String(), ".eE") || len(n) > 64 || len(strings.TrimLeft(exponent, "+-0")) > 2 {
		return n // written in digits already, or out of every range
	}
	if exact, ok := new(big.Rat).SetString(n.String()); ok && exact.IsInt() {
		return json.Number(exact.Num().String())
	}
	return n
}

func decodeYAML(data []byte) (any, error) {
	if bytes.Contains(data, []byte("\n---")) {
		return nil, errors.New("holds several YAML documents; a write takes one object")
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		why := strings.Join(strings.Fields(err.Error()), " ") // the parser's text has lines
		why = strings.TrimPrefix(strings.TrimPrefix(why, "yaml: "), "unmarshal errors: ")
		return nil, fmt.Errorf("cannot be read as JSON or YAML: %s", why)
	}
	return output.Decode(asJSON)
}

func fail(name, format string, args ...any) *clierr.Error {
	return clierr.New(clierr.InvalidBody, "%s %s", name, fmt.Sprintf(format, args...))
}

// kindOf names the JSON type of a value.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return fmt.Sprintf("%T", v)
	}
}
