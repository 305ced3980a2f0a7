package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// logLine is one line of a container's log.
type logLine struct {
	at      time.Time
	stamp   string
	partial bool
	text    []byte
}

// parseLogLine reads a line in the format of the container runtime interface.
func parseLogLine(line []byte) (logLine, bool) {
	f := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
	if len(f) != 4 {
		return logLine{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(f[0]))
	if err != nil {
		return logLine{}, false
	}
	return logLine{at: at, stamp: string(f[0]), partial: string(f[2]) == "P", text: bytes.Clone(f[3])}, true
}

// Logs returns a container's output, as a kubelet serves it. With Follow it goes on until ctx ends or the container
// has ended.
func (a *Agent) Logs(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	if o == nil {
		o = &corev1.PodLogOptions{}
	}
	w := a.byName(namespace, pod)
	if w == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, namespace+"/"+pod)
	}
	files, alive, err := w.logFiles(o)
	if err != nil {
		return nil, err
	}
	lines, err := readLog(files)
	if err != nil {
		return nil, err
	}
	var last time.Time
	if len(lines) > 0 {
		last = lines[len(lines)-1].at
	}
	lines = selectLines(lines, o)
	r, out := io.Pipe()
	a.wg.Go(func() {
		sink := &logSink{out: out, options: o}
		err := sink.writeAll(lines)
		if err == nil && o.Follow {
			err = sink.follow(ctx, a.life, files, last, alive)
		}
		if errors.Is(err, errLogLimit) {
			err = nil
		}
		out.CloseWithError(err)
	})
	// A reader that has gone away, or does not read any more, must not hold the agent up.
	context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	context.AfterFunc(a.life, func() { out.CloseWithError(io.EOF) })
	return r, nil
}

func (a *Agent) byName(namespace, pod string) *worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		w.mu.Lock()
		match := w.latest != nil && w.latest.Namespace == namespace && w.latest.Name == pod
		w.mu.Unlock()
		if match {
			return w
		}
	}
	return nil
}

// logFiles finds the files of the chosen container, and a function that tells whether it still writes to them.
func (w *worker) logFiles(o *corev1.PodLogOptions) ([2]string, func() bool, error) {
	var none [2]string
	w.mu.Lock()
	pod, sandbox := w.latest, w.sandbox
	w.mu.Unlock()
	name := o.Container
	if name == "" {
		name = pod.Spec.Containers[0].Name
		if len(pod.Spec.Containers) > 1 {
			return none, nil, apierrors.NewBadRequest("the Pod has several containers; name one: " + strings.Join(containerNames(pod), ", "))
		}
	}
	if !slices.Contains(containerNames(pod), name) {
		return none, nil, apierrors.NewBadRequest(fmt.Sprintf("the Pod has no container %q; it has: %s", name, strings.Join(containerNames(pod), ", ")))
	}
	state, err := w.record()
	if err != nil {
		return none, nil, err
	}
	id := ""
	if state != nil {
		if c := state.Containers[name]; c != nil {
			switch {
			case o.Previous:
				id = c.Previous
			case c.ID != "":
				id = c.ID
			default:
				id = c.Previous // it waits to be started again
			}
		}
	}
	if id == "" || sandbox == nil {
		what := "container"
		if o.Previous {
			what = "previous terminated container"
		}
		return none, nil, apierrors.NewBadRequest(fmt.Sprintf("%s %q in pod %q is not available", what, name, pod.Name))
	}
	alive := func() bool {
		s, err := w.record()
		if err != nil || s == nil {
			return false
		}
		c := s.Containers[name]
		return c != nil && c.ID == id && c.Ended == nil
	}
	return sandbox.LogFiles(id), alive, nil
}

func containerNames(pod *corev1.Pod) []string {
	var names []string
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	return names
}

// readLog returns all complete lines of the two files in the order in which they were written.
func readLog(files [2]string) ([]logLine, error) {
	var parts [2][]logLine
	for i, path := range files {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r := bufio.NewReader(f)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				break // an incomplete line is being written
			}
			if l, ok := parseLogLine(line); ok {
				parts[i] = append(parts[i], l)
			}
		}
		f.Close()
	}
	if len(parts[0]) > 0 && len(parts[1]) > 0 && parts[1][0].at.Before(parts[0][0].at) {
		parts[0], parts[1] = parts[1], parts[0]
	}
	return append(parts[0], parts[1]...), nil
}

// selectLines applies the options that choose from the past.
func selectLines(lines []logLine, o *corev1.PodLogOptions) []logLine {
	var since time.Time
	if o.SinceSeconds != nil {
		since = time.Now().Add(-time.Duration(*o.SinceSeconds) * time.Second)
	}
	if o.SinceTime != nil {
		since = o.SinceTime.Time
	}
	lines = slices.DeleteFunc(lines, func(l logLine) bool { return l.at.Before(since) })
	if o.TailLines == nil {
		return lines
	}
	want := *o.TailLines
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i].partial {
			continue
		}
		if want == 0 {
			return lines[i+1:]
		}
		want--
	}
	return lines
}

var errLogLimit = errors.New("the limit of bytes is reached")

type logSink struct {
	out     *io.PipeWriter
	options *corev1.PodLogOptions
	written int64
	middle  bool // the last line was a partial one
}

func (s *logSink) writeAll(lines []logLine) error {
	for _, l := range lines {
		var b []byte
		if s.options.Timestamps && !s.middle {
			b = append(b, l.stamp+" "...)
		}
		b = append(b, l.text...)
		if !l.partial {
			b = append(b, '\n')
		}
		s.middle = l.partial
		if limit := s.options.LimitBytes; limit != nil && s.written+int64(len(b)) > *limit {
			b = b[:*limit-s.written]
			_, _ = s.out.Write(b)
			return errLogLimit
		}
		n, err := s.out.Write(b)
		s.written += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// follow writes what is added, woken by changes of the files.
func (s *logSink) follow(ctx, life context.Context, files [2]string, last time.Time, alive func() bool) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	// The record of the Pod's state lies above the containers' directories; it changes when the container ends.
	dir := filepath.Dir(files[0])
	for _, d := range []string{dir, filepath.Dir(filepath.Dir(dir))} {
		if err := watcher.Add(d); err != nil {
			return err
		}
	}
	for {
		running := alive()
		lines, err := readLog(files)
		if err != nil {
			return err
		}
		lines = slices.DeleteFunc(lines, func(l logLine) bool { return !l.at.After(last) })
		if len(lines) > 0 {
			last = lines[len(lines)-1].at
		}
		if err := s.writeAll(lines); err != nil {
			return err
		}
		if !running {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return nil
		case _, ok := <-watcher.Events:
			if !ok {
				return nil
			}
		case err := <-watcher.Errors:
			return err
		}
	}
}
