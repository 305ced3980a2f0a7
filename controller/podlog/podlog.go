// Package podlog reads what the containers of Pods wrote, on a cluster and on the embedded platform alike.
package podlog

import (
	"context"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Query asks for the log of one container.
type Query struct {
	Namespace string
	Pod       string
	// Container may be empty where the Pod has one only.
	Container string
	// Since leaves out what was written before. A kubelet counts it in whole seconds: a line may be older by less than one.
	Since time.Time
	// Lines is how many lines from the end; 0 means all.
	Lines  int64
	Follow bool
}

// Reader opens a container's log: one line an entry, each led by an RFC 3339 time with nanoseconds and a blank, as
// `kubectl logs --timestamps` prints it. With Follow it stays open until ctx ends or the container does.
type Reader func(ctx context.Context, q Query) (io.ReadCloser, error)

// From makes a Reader of what serves the log of a Pod's container as a kubelet does.
func From(open func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error)) Reader {
	return func(ctx context.Context, q Query) (io.ReadCloser, error) {
		o := &corev1.PodLogOptions{Container: q.Container, Follow: q.Follow, Timestamps: true}
		if q.Lines > 0 {
			o.TailLines = &q.Lines
		}
		if !q.Since.IsZero() {
			since := metav1.NewTime(q.Since)
			o.SinceTime = &since
		}
		return open(ctx, q.Namespace, q.Pod, o)
	}
}
