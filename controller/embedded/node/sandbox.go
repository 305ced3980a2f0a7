package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/embedded/network"
	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

// annotationNetwork on a Pod says "none" for a sandbox that reaches nothing.
const annotationNetwork = v1alpha1.Prefix + "network"

func (w *worker) log() *slog.Logger {
	if w.pod == nil {
		return w.agent.log.With("pod", string(w.uid))
	}
	return w.agent.log.With("pod", w.pod.Namespace+"/"+w.pod.Name)
}

// restoreCounts takes the counters of an earlier life from the Pod's status: the sandbox itself has gone.
func (w *worker) restoreCounts() {
	w.state = &podState{Namespace: w.pod.Namespace, Name: w.pod.Name, Started: time.Now(), Containers: map[string]*containerState{}}
	for _, s := range append(w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses...) {
		c := &containerState{Restarts: s.RestartCount, Last: s.LastTerminationState.Terminated}
		if s.ContainerID != "" {
			c.Restarts++
			if s.State.Running != nil {
				c.Last = lostTermination(s.ContainerID, s.State.Running.StartedAt)
			} else if s.State.Terminated != nil {
				c.Last = s.State.Terminated
			}
		}
		w.state.Containers[s.Name] = c
	}
	if w.pod.Status.StartTime != nil {
		w.state.Started = w.pod.Status.StartTime.Time
	}
	if id := w.pod.Annotations[v1alpha1.AnnotationResetID]; id != "" {
		// A sandbox that is made anew is clean.
		w.reset.fresh = id
	}
}

func lostTermination(id string, started metav1.Time) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "the sandbox ended with the node agent or the machine",
		ContainerID: id, StartedAt: started, FinishedAt: metav1.Now(),
	}
}

// tellStopped writes that the Pod's containers have ended with the platform, and when. The next agent starts them again.
// Where it cannot be written, the next agent can tell less.
func (w *worker) tellStopped(ctx context.Context) error {
	w.mu.Lock()
	w.pod = w.latest
	w.mu.Unlock()
	if w.pod == nil || w.over || w.pod.DeletionTimestamp != nil || w.evicted != "" || evicted(w.pod) {
		return nil
	}
	stopped := false
	for _, c := range w.containers {
		if c.state != running {
			continue
		}
		stopped = true
		c.state, c.reason, c.message = waiting, v1alpha1.ReasonPlatformStopped, "the platform was stopped; its next start runs the container again"
		c.started, c.ready = false, false
		c.Last = &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: v1alpha1.ReasonPlatformStopped, Message: "the platform was stopped",
			ContainerID: containerIDPrefix + c.ID, StartedAt: metav1.NewTime(c.Started), FinishedAt: metav1.Now(),
		}
	}
	if !stopped {
		return nil
	}
	if err := w.publish(ctx, w.status()); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write how the Pod %s/%s ended: %w", w.pod.Namespace, w.pod.Name, err)
	}
	return nil
}

func (w *worker) startSandbox(ctx context.Context) error {
	w.state.Runtime = w.agent.standard.Name()
	if c := w.pod.Spec.RuntimeClassName; c != nil && *c != "" {
		w.state.Runtime = *c
	}
	r, err := w.agent.runtimes.get(ctx, w.state.Runtime)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	w.state.Network = w.pod.Annotations[annotationNetwork] != "none"
	if w.state.IP == "" {
		ip, err := w.agent.network.Allocate()
		if err != nil {
			return err
		}
		w.state.IP = ip.String()
	}
	if err := w.save(); err != nil {
		return err
	}
	config := w.sandboxConfig()
	p, err := r.StartPod(ctx, config)
	if err != nil {
		return err
	}
	if !config.LoopbackOnly {
		if err := w.agent.network.Attach(string(w.uid), p.PID(), w.state.IP); err != nil {
			return errors.Join(fmt.Errorf("connect the sandbox to the network: %w", err), p.Stop(ctx))
		}
	}
	if err := p.Persist(); err != nil {
		return errors.Join(err, p.Stop(ctx), w.agent.network.Detach(string(w.uid)))
	}
	w.setSandbox(p)
	w.agent.setAddress(w.state.IP, w)
	return nil
}

func (w *worker) sandboxConfig() runtime.PodConfig {
	return runtime.PodConfig{
		UID: string(w.uid), Hostname: hostname(w.state.Name), Dir: w.dir, Address: w.state.IP,
		LoopbackOnly: !w.state.Network || !w.agent.network.Outbound(),
	}
}

const maxHostname = 63

func hostname(pod string) string {
	if len(pod) > maxHostname {
		return pod[:maxHostname]
	}
	return pod
}

// sandboxLost takes note that the whole sandbox has ended without having been told to.
func (w *worker) sandboxLost() {
	w.log().Warn("a Pod's sandbox has ended unexpectedly; it starts again")
	ctx := context.WithoutCancel(w.agent.life)
	for _, c := range w.containers {
		if c.state == running {
			w.exited(c, lostTermination(containerIDPrefix+c.ID, metav1.NewTime(c.Started)))
		}
	}
	if err := w.discardSandbox(ctx); err != nil {
		w.log().Error("what is left of a sandbox is not removed", "error", err)
	}
	// Init containers run again: they prepare volumes and processes of the new sandbox.
	for i := range w.pod.Spec.InitContainers {
		delete(w.containers, w.pod.Spec.InitContainers[i].Name)
	}
}

func (w *worker) discardSandbox(ctx context.Context) error {
	p := w.currentSandbox()
	if p == nil {
		return nil
	}
	err := p.Stop(ctx)
	w.setSandbox(nil)
	w.prepared, w.state.VolumeImages = false, nil
	return errors.Join(err, w.agent.network.Detach(string(w.uid)))
}

// stopSandbox ends the sandbox and removes everything the Pod has on the machine.
func (w *worker) stopSandbox(ctx context.Context) error {
	w.stopProbes()
	err := w.discardSandbox(ctx)
	if w.state != nil && w.state.IP != "" {
		w.agent.setAddress(w.state.IP, nil)
		w.agent.network.Free(w.state.IP)
		w.state.IP = ""
	}
	w.setImages(nil)
	return errors.Join(err, namespaces.RemoveTree(w.dir))
}

// terminate ends a deleted Pod: its containers are asked, then killed, then the Pod is deleted for good.
func (w *worker) terminate(ctx context.Context) time.Duration {
	p := w.currentSandbox()
	if !w.terminating {
		w.terminating = true
		w.stopProbes()
		if p != nil {
			for _, c := range w.containers {
				if c.state == running {
					_ = p.Signal(ctx, c.ID, syscall.SIGTERM) // what it does not reach is killed below
				}
			}
		}
	}
	// The time of deletion is when the grace period ends; a later, shorter one counts.
	w.killAt = w.pod.DeletionTimestamp.Time
	open := 0
	for _, c := range w.containers {
		if c.state == running {
			open++
		}
	}
	if p != nil && open > 0 {
		if wait := time.Until(w.killAt); wait > 0 {
			return wait
		}
		var all []*container
		for _, c := range w.containers {
			all = append(all, c)
		}
		if err := w.kill(ctx, all...); err != nil && !errors.Is(err, runtime.ErrGone) {
			w.log().Error("a deleted Pod's containers are not ended", "error", err)
			return retryPass
		}
	}
	ip := w.state.IP
	if err := w.stopSandbox(context.WithoutCancel(ctx)); err != nil {
		w.log().Error("a deleted Pod's sandbox is not removed", "error", err)
		return retryPass
	}
	w.state.IP = ip // the last status still names it
	if err := w.writeFinal(ctx); err != nil {
		w.log().Error("a deleted Pod is not taken out of the API", "error", err)
		return retryPass
	}
	w.over = true
	return idlePass
}

// adopt finds the Pods that an earlier agent left, and takes over those whose sandbox still runs.
func (a *Agent) adopt(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(a.dir, "pods"))
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, e := range entries {
		w := a.newWorker(types.UID(e.Name()))
		if err := w.adopt(ctx); err != nil {
			a.log.Info("a former sandbox cannot be taken over and is removed", "pod", e.Name(), "reason", err)
			if err := namespaces.End(w.dir); err != nil {
				a.log.Error("a former sandbox is not ended", "pod", e.Name(), "error", err)
			}
			if err := a.network.Detach(e.Name()); err != nil {
				a.log.Error("a network interface is left", "pod", e.Name(), "error", err)
			}
			if err := namespaces.RemoveTree(w.dir); err != nil {
				a.log.Error("files of a former sandbox are left", "pod", e.Name(), "error", err)
			}
			continue
		}
		keep[e.Name()] = true
		a.mu.Lock()
		a.startWorker(w)
		a.mu.Unlock()
	}
	if err := a.network.Leftovers(keep); err != nil {
		return err
	}
	return a.runtime.Leftovers(ctx, keep)
}

var errNoRecord = errors.New("nothing about it is on record")

func (w *worker) adopt(ctx context.Context) error {
	state, err := loadState(w.dir)
	if err != nil {
		return err
	}
	if state == nil || state.IP == "" {
		return errNoRecord
	}
	w.state = state
	r, err := w.agent.runtimes.get(ctx, cmp.Or(state.Runtime, namespaces.Name))
	if err != nil {
		return err
	}
	p, err := r.AdoptPod(ctx, w.sandboxConfig())
	if err != nil {
		return err
	}
	if err := w.agent.network.Keep(state.IP); err != nil && !errors.Is(err, network.ErrForeign) {
		p.Release()
		return err
	}
	known, err := p.Containers(ctx)
	if err != nil {
		p.Release()
		return err
	}
	byID := map[string]runtime.ContainerState{}
	for _, s := range known {
		byID[s.ID] = s
	}
	w.setSandbox(p)
	for name := range state.Containers {
		c := w.container(name)
		s, ok := byID[c.ID]
		switch {
		case c.Ended != nil:
			c.state = ended
		case ok:
			c.state, c.reason = running, ""
			if !s.Running {
				w.ended(s)
			}
		case c.ID != "":
			// On record, but the agent died before it was started.
			_ = p.Remove(ctx, c.ID) // what it has of files goes with the Pod at the latest
			c.ID = ""
		}
	}
	w.setImages(state.images())
	w.agent.setAddress(state.IP, w)
	return nil
}
