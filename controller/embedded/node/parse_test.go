package node

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/embedded/image"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "EMPTY": "", "NESTED": "$(A)"}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(EMPTY)": "", "$(ABSENT)": "$(ABSENT)", "$$(A)": "$(A)",
		"$$$(A)": "$1", "$A": "$A", "$": "$", "$(": "$(", "$(A": "$(A", "$(NESTED)": "$(A)", "$()": "$()", "ü$(A)": "ü1",
	} {
		if got := expand(in, lookup); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$(B)$(")
	f.Fuzz(func(t *testing.T, in string) {
		none := expand(in, func(string) (string, bool) { return "", false })
		if !strings.Contains(in, "$$") && none != in {
			t.Errorf("without values %q becomes %q", in, none)
		}
	})
}

func TestCommand(t *testing.T) {
	img := &image.Config{Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}}
	for _, test := range []struct{ command, args, want []string }{
		{nil, nil, []string{"entry", "cmd"}},
		{nil, []string{"a"}, []string{"entry", "a"}},
		{[]string{"c"}, nil, []string{"c"}},
		{[]string{"c"}, []string{"a"}, []string{"c", "a"}},
	} {
		got := command(&corev1.Container{Command: test.command, Args: test.args}, img, func(string) (string, bool) { return "", false })
		if !slices.Equal(got, test.want) {
			t.Errorf("command %v with arguments %v becomes %v, want %v", test.command, test.args, got, test.want)
		}
	}
}

func TestCapabilities(t *testing.T) {
	get := func(add, drop []corev1.Capability) []string {
		return capabilities(&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: add, Drop: drop}})
	}
	if got := get(nil, []corev1.Capability{"ALL"}); len(got) != 0 {
		t.Errorf("without all: %v", got)
	}
	if got := get([]corev1.Capability{"CAP_CHOWN"}, []corev1.Capability{"ALL"}); !slices.Equal(got, []string{"CHOWN"}) {
		t.Errorf("one only: %v", got)
	}
	if got := get([]corev1.Capability{"NET_RAW"}, []corev1.Capability{"setuid"}); slices.Contains(got, "SETUID") || !slices.Contains(got, "NET_RAW") {
		t.Errorf("one more, one less: %v", got)
	}
}

func TestSelectLines(t *testing.T) {
	line := func(text string, partial bool) logLine { return logLine{text: []byte(text), partial: partial} }
	lines := []logLine{line("a", false), line("b1", true), line("b2", false), line("c", false)}
	for n, want := range map[int64]string{0: "", 1: "c", 2: "b1 b2 c", 3: "a b1 b2 c", 9: "a b1 b2 c"} {
		var got []string
		for _, l := range selectLines(slices.Clone(lines), &corev1.PodLogOptions{TailLines: &n}) {
			got = append(got, string(l.text))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("the last %d lines are %v, want %q", n, got, want)
		}
	}
}

func FuzzLogLine(f *testing.F) {
	f.Add([]byte("2026-11-29T17:13:10.123Z stdout F hello\n"))
	f.Add([]byte("2026-11-29T17:13:10Z stderr P \n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if l, ok := parseLogLine(raw); ok && !bytes.Contains(raw, l.text) {
			t.Errorf("%q is read as %q", raw, l.text)
		}
	})
}
