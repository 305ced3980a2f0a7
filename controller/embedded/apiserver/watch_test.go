package apiserver_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// TestWrongTokenInProcess: being the same process does not make anybody the administrator.
func TestWrongTokenInProcess(t *testing.T) {
	wrong := *config
	wrong.BearerToken = "wrong"
	clients, err := kubernetes.NewForConfig(&wrong)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a wrong token lists Pods")
	}
}

func TestWatchInProcess(t *testing.T) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := clients.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "watched"})
	if err != nil {
		t.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "watched-", Labels: map[string]string{"watched": ""}}, Data: map[string]string{"k": strings.Repeat("x", 256<<10)}}
	if _, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added || len(e.Object.(*corev1.ConfigMap).Data["k"]) != 256<<10 {
		t.Errorf("event: %+v", e.Type)
	}
	if err := clients.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "watched"}); err != nil {
		t.Error(err)
	}
	w.Stop()
	for range w.ResultChan() { // ends; what the client makes of the cut is its own
	}
}
