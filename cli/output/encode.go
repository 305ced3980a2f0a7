package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// MarshalJSON encodes v on one line without HTML escapes. Control characters that a
// terminal would obey are escaped, which leaves the value what it is.
func MarshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return escapeControls(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// WriteJSON writes v on one line.
func WriteJSON(w io.Writer, v any) error {
	data, err := MarshalJSON(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// WriteIndented writes v as JSON for a person or a file.
func WriteIndented(w io.Writer, v any) error {
	data, err := MarshalJSON(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// WriteYAML writes v as one YAML document.
func WriteYAML(w io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// WriteCSV writes rows with a heading. What is missing is an empty field; line
// breaks inside a field are kept, as RFC 4180 quotes them, and other control
// characters are escaped.
func WriteCSV(w io.Writer, heading []string, rows [][]string) error {
	if err := WriteCSVRow(w, heading); err != nil {
		return err
	}
	for _, row := range rows {
		if err := WriteCSVRow(w, row); err != nil {
			return err
		}
	}
	return nil
}

// WriteCSVRow writes one row.
func WriteCSVRow(w io.Writer, row []string) error {
	safe := make([]string, len(row))
	for i, cell := range row {
		safe[i] = csvCell(cell)
	}
	out := csv.NewWriter(w)
	if err := out.Write(safe); err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

func csvCell(s string) string {
	if strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ReplaceAll(s, "\r\n", "\n") {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			fmt.Fprintf(&b, `\x%02x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// escapeControls replaces the characters that JSON allows raw and terminals obey:
// DEL, C1 controls and the bidirectional ones. They occur only inside strings.
func escapeControls(data []byte) []byte {
	hot := func(r rune) bool {
		return r >= 0x7f && r <= 0x9f || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x061c
	}
	if bytes.IndexFunc(data, hot) < 0 {
		return data
	}
	var b bytes.Buffer
	for _, r := range string(data) {
		if hot(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}
