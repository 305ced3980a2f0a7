package apiserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/agentbox/controller/embedded/apiserver"
)

func start(t testing.TB, dir string) *apiserver.Server {
	t.Helper()
	s, err := apiserver.Start(context.Background(), apiserver.Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRestart(t *testing.T) {
	ctx, dir := context.Background(), filepath.Join(t.TempDir(), "data")
	s := start(t, dir)
	before, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	// From outside: TLS, the token, and private files.
	outside, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	if _, err := kubernetes.NewForConfigOrDie(outside).CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*rest.Config){
		"no token":    func(c *rest.Config) { c.BearerToken = "" },
		"wrong token": func(c *rest.Config) { c.BearerToken = strings.Repeat("0", 64) },
	} {
		for where, c := range map[string]*rest.Config{"outside": outside, "inside": s.Config} {
			c = rest.CopyConfig(c)
			change(c)
			if _, err := kubernetes.NewForConfigOrDie(c).CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
				t.Errorf("%s, %s: %v", where, name, err)
			}
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Type() != fs.ModeSocket && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	// A second server in the same directory says who is there.
	if _, err := apiserver.Start(ctx, apiserver.Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "in use by process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("a second server: %v", err)
	}
	s.Stop()

	s = start(t, dir)
	defer s.Stop()
	if _, err := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(s.Kubeconfig); err != nil || string(after) != string(before) {
		t.Errorf("the kubeconfig of the first start does not serve the second: %v", err)
	}
}

func TestLogs(t *testing.T) {
	ctx := context.Background()
	s := start(t, t.TempDir())
	defer s.Stop()
	pods := kubernetes.NewForConfigOrDie(s.Config).CoreV1().Pods("default")
	p, err := pods.Create(ctx, newPod("default"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lines := int64(3)
	read := func(name string) (string, error) {
		r, err := pods.GetLogs(name, &corev1.PodLogOptions{Container: "sandbox", TailLines: &lines}).Stream(ctx)
		if err != nil {
			return "", err
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return string(b), err
	}
	if _, err := read(p.Name); err == nil || !strings.Contains(err.Error(), "no node agent") {
		t.Errorf("without a node agent: %v", err)
	}
	s.ServeLogs(func(_ context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(fmt.Sprintf("%s/%s/%s: %d lines", namespace, pod, o.Container, *o.TailLines))), nil
	})
	if got, err := read(p.Name); err != nil || got != "default/"+p.Name+"/sandbox: 3 lines" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := read("nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("a missing Pod: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := t.TempDir()
	if err := os.WriteFile(filepath.Join(damaged, "token"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ dir, want string }{
		"none":          {"", "name one"},
		"a file":        {file, "not a directory"},
		"damaged token": {damaged, "remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := apiserver.Start(context.Background(), apiserver.Options{DataDir: tt.dir})
			if err == nil {
				s.Stop()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("changed my mind"))
	if _, err := apiserver.Start(ctx, apiserver.Options{DataDir: t.TempDir()}); err == nil {
		t.Error("a start that was given up succeeded")
	}
}

const childDir = "AGENTBOX_TEST_APISERVER_DIR"

// writeForEver is the process that TestKilled kills: it prints the name of each object that the API has accepted.
func writeForEver(dir string) error {
	s, err := apiserver.Start(context.Background(), apiserver.Options{DataDir: dir})
	if err != nil {
		return err
	}
	c := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default")
	for worker := range 4 {
		go func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("cm-%d-%d-%d", os.Getpid(), worker, i)
				if _, err := c.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Println(name)
			}
		}()
	}
	select {}
}

// What the API has accepted outlives a kill at any instant: after some writes, and while starting.
func TestKilled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var accepted []string
	for _, writes := range []int{0, 1, 150, 400} {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; i < writes && lines.Scan(); i++ {
			accepted = append(accepted, lines.Text())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it still said before it died
			if name := lines.Text(); strings.Count(name, "-") == 3 {
				accepted = append(accepted, name)
			}
		}
		_ = cmd.Wait()
	}
	if len(accepted) < 551 {
		t.Fatalf("only %d writes were accepted", len(accepted))
	}
	s := start(t, dir)
	defer s.Stop()
	l, err := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, cm := range l.Items {
		have[cm.Name] = true
	}
	for _, name := range accepted[:len(accepted)-1] { // the last line may be cut short
		if !have[name] {
			t.Errorf("%s was accepted and is lost", name)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		b.StartTimer()
		s := start(b, dir)
		b.StopTimer()
		s.Stop()
		b.StartTimer()
	}
}

func BenchmarkPodUpdate(b *testing.B) {
	ctx, c := context.Background(), newClient(b)
	p := newPod(newNamespace(b, c))
	if err := c.Create(ctx, p); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		p.Labels = map[string]string{"i": strconv.Itoa(i)}
		if err := c.Update(ctx, p); err != nil {
			b.Fatal(err)
		}
	}
}
