package node

import (
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

const (
	// limitsEvery is how often a Pod with limits on what it writes is measured.
	limitsEvery = time.Second
	// measureShare is the part of the time that measuring one Pod may take, so that a Pod of very many files is measured
	// less often.
	measureShare = 20
)

// guardLimits evicts Pods that hold more of the disk than their limits on ephemeral storage and the size limits of
// their volumes allow, as a kubelet does. It ends with the agent.
func (a *Agent) guardLimits() {
	a.every(limitsEvery, func() {
		for _, w := range a.evictable() {
			began := time.Now()
			if began.Before(w.measureAt) {
				continue
			}
			w.mu.Lock()
			pod, wipes := w.latest, w.wipes
			w.mu.Unlock()
			if message := w.exceeded(pod); message != "" {
				w.setEviction(message, wipes)
			}
			w.measureAt = time.Now().Add(time.Since(began) * measureShare)
		}
	})
}

// exceeded names the first limit that a Pod has exceeded, with what it holds; it is empty when there is none.
func (w *worker) exceeded(pod *corev1.Pod) string {
	together, limited := storageLimit(pod)
	var all uint64
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium == corev1.StorageMediumMemory {
			continue // a volume in memory is no larger than its file system
		}
		size := v.EmptyDir.SizeLimit
		if !limited && size == nil {
			continue
		}
		held := diskUse(w.volumeDir(v.Name), math.MaxInt)
		if size != nil && held > uint64(size.Value()) {
			return fmt.Sprintf("the emptyDir volume %s holds %s, and its sizeLimit is %s", v.Name, megabytes(held), size)
		}
		all += held
	}
	if !limited {
		return ""
	}
	limits := map[string]resource.Quantity{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if limit, ok := list[i].Resources.Limits[corev1.ResourceEphemeralStorage]; ok {
				limits[list[i].Name] = limit
			}
		}
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			id, ok := strings.CutPrefix(list[i].ContainerID, containerIDPrefix)
			if !ok {
				continue
			}
			dir, copied := namespaces.Layer(w.dir, id)
			held := diskUse(dir, math.MaxInt)
			held -= min(held, copied)
			if limit, ok := limits[list[i].Name]; ok && held > uint64(limit.Value()) {
				return fmt.Sprintf("the container %s has written %s, and its limit of ephemeral-storage is %s", list[i].Name, megabytes(held), &limit)
			}
			all += held
		}
	}
	all += w.deleted(math.MaxInt)
	if all > uint64(together.Value()) {
		return fmt.Sprintf("the Pod has written %s, and the limits of ephemeral-storage of its containers are %s together", megabytes(all), &together)
	}
	return ""
}

// storageLimit is what the containers of a Pod may write together; ok is false when none has a limit.
func storageLimit(pod *corev1.Pod) (sum resource.Quantity, ok bool) {
	for i := range pod.Spec.Containers {
		if limit, has := pod.Spec.Containers[i].Resources.Limits[corev1.ResourceEphemeralStorage]; has {
			sum.Add(limit)
			ok = true
		}
	}
	return sum, ok
}

func megabytes(bytes uint64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
