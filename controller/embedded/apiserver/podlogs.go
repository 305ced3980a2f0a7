package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// LogFunc opens the log of a container of a Pod, as a kubelet serves it.
type LogFunc func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error)

// podLogs is the subresource that `kubectl logs` reads. The node agent has the logs.
type podLogs struct {
	pods rest.Getter
	open *atomic.Pointer[LogFunc]
}

var (
	_ rest.GetterWithOptions = &podLogs{}
	_ rest.StorageMetadata   = &podLogs{}
	_ rest.ResourceStreamer  = &logStream{}
)

func (*podLogs) New() runtime.Object { return &corev1.Pod{} }

func (*podLogs) Destroy() {}

func (*podLogs) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

func (*podLogs) ProducesObject(string) any { return "" }

func (*podLogs) NewGetOptions() (runtime.Object, bool, string) {
	return &corev1.PodLogOptions{}, false, ""
}

// Get checks the Pod; the log is opened when the answer is written.
func (l *podLogs) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	if _, err := l.pods.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, err
	}
	open := l.open.Load()
	if open == nil {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotImplemented, Reason: "NotImplemented", Message: "no node agent serves logs here",
		}}
	}
	namespace, _ := request.NamespaceFrom(ctx)
	return &logStream{namespace, name, options.(*corev1.PodLogOptions), *open}, nil
}

// logStream is an object only because the registry returns objects.
type logStream struct {
	namespace, pod string
	options        *corev1.PodLogOptions
	open           LogFunc
}

func (*logStream) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (s *logStream) DeepCopyObject() runtime.Object {
	c := *s
	return &c
}

func (s *logStream) InputStream(ctx context.Context, _, _ string) (io.ReadCloser, bool, string, error) {
	r, err := s.open(ctx, s.namespace, s.pod, s.options)
	if err != nil {
		return nil, false, "", apierrors.NewBadRequest(fmt.Sprintf("read the log of %s: %v", s.pod, err))
	}
	return r, s.options.Follow, "text/plain", nil
}

// registerPodLogs teaches the scheme to read the parameters of the log subresource.
func registerPodLogs(s *runtime.Scheme) error {
	return s.AddConversionFunc((*url.Values)(nil), (*corev1.PodLogOptions)(nil), func(in, out any, _ conversion.Scope) error {
		return readLogOptions(*in.(*url.Values), out.(*corev1.PodLogOptions))
	})
}

func readLogOptions(v url.Values, o *corev1.PodLogOptions) error {
	o.Container = v.Get("container")
	for name, into := range map[string]*bool{"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps} {
		if text := v.Get(name); text != "" {
			b, err := strconv.ParseBool(text)
			if err != nil {
				return apierrors.NewBadRequest(fmt.Sprintf("%s must be true or false, not %q", name, text))
			}
			*into = b
		}
	}
	for name, into := range map[string]**int64{"tailLines": &o.TailLines, "limitBytes": &o.LimitBytes, "sinceSeconds": &o.SinceSeconds} {
		if text := v.Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				return apierrors.NewBadRequest(fmt.Sprintf("%s must be a whole number that is not negative, not %q", name, text))
			}
			*into = &n
		}
	}
	if text := v.Get("sinceTime"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("sinceTime must be a time like 2006-01-02T15:04:05Z, not %q", text))
		}
		since := metav1.NewTime(t)
		o.SinceTime = &since
	}
	return nil
}
