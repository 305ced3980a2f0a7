package apiserver_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A leader that ends gives its lease back, and the next one takes over.
func TestLeaderElection(t *testing.T) {
	ns := newNamespace(t, newClient(t))
	client := kubernetes.NewForConfigOrDie(config).CoordinationV1()
	elect := func(ctx context.Context, name string) (leads, ended chan struct{}) {
		leads, ended = make(chan struct{}), make(chan struct{})
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: "controller", Namespace: ns},
				Client:     client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: time.Minute, RenewDeadline: 30 * time.Second, RetryPeriod: 50 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { close(leads) },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(ended)
			e.Run(ctx)
		}()
		return leads, ended
	}
	first, stop := context.WithCancel(context.Background())
	leads, ended := elect(first, "one")
	<-leads
	second, stopSecond := context.WithCancel(context.Background())
	leads, endedSecond := elect(second, "two")
	stop()
	<-ended
	<-leads
	stopSecond()
	<-endedSecond
}
