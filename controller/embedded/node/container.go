package node

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/embedded/image"
	"navix.sh/agentbox/controller/embedded/runtime"
)

type lifeState int

const (
	waiting lifeState = iota
	running
	ended
)

// container is a container of a Pod with what is known of it in this process.
type container struct {
	*containerState
	state lifeState
	// reason and message say why it waits.
	reason, message string
	started, ready  bool
	probing         *probing
	// backOff is how long the next restart waits; notBefore is when it may happen.
	backOff   time.Duration
	notBefore time.Time
}

// The waits between restarts, as a kubelet has them.
const (
	firstBackOff = 10 * time.Second
	maxBackOff   = 5 * time.Minute
	// calmRun is how long a container must run for its restarts to be immediate again.
	calmRun = 10 * time.Minute
)

// killLimit bounds how long the kernel may take to end a killed container.
const killLimit = 30 * time.Second

func (w *worker) container(name string) *container {
	c := w.containers[name]
	if c == nil {
		c = &container{containerState: w.state.Containers[name]}
		if c.containerState == nil {
			c.containerState = &containerState{}
			w.state.Containers[name] = c.containerState
		}
		c.reason = "ContainerCreating"
		w.containers[name] = c
	}
	return c
}

// runContainers runs the init containers one after the other, then all others.
func (w *worker) runContainers(ctx context.Context) time.Duration {
	due := idlePass
	for i := range w.pod.Spec.InitContainers {
		spec := &w.pod.Spec.InitContainers[i]
		sidecar := spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
		c := w.container(spec.Name)
		if c.state == ended && c.Ended.ExitCode == 0 && !sidecar {
			continue
		}
		due = min(due, w.runContainer(ctx, spec, c))
		if sidecar && c.started {
			continue
		}
		for j := range w.pod.Spec.Containers {
			if o := w.container(w.pod.Spec.Containers[j].Name); o.state == waiting {
				o.reason, o.message = "PodInitializing", ""
			}
		}
		return due
	}
	for i := range w.pod.Spec.Containers {
		spec := &w.pod.Spec.Containers[i]
		due = min(due, w.runContainer(ctx, spec, w.container(spec.Name)))
	}
	return due
}

// runContainer starts a container, or replaces it when its image has changed, unless it has to wait.
func (w *worker) runContainer(ctx context.Context, spec *corev1.Container, c *container) time.Duration {
	if c.state == running {
		if c.Image == spec.Image {
			if c.probing == nil {
				w.resumeProbes(spec, c)
			}
			return idlePass
		}
		// Replaced at once: nothing in a container survives a change of its image anyway.
		if err := w.kill(ctx, c); err != nil {
			w.log().Error("a container is not ended for its new image", "container", spec.Name, "error", err)
			return retryPass
		}
		w.retire(ctx, c)
		c.state, c.notBefore, c.backOff = waiting, time.Time{}, 0
		c.reason, c.message = "ContainerCreating", ""
	}
	if c.state == ended {
		if !w.restarts(c) {
			return idlePass
		}
		if c.Image != spec.Image {
			c.notBefore, c.backOff = time.Time{}, 0
		}
		w.retire(ctx, c)
		c.state = waiting
		c.reason = "CrashLoopBackOff"
		c.message = fmt.Sprintf("back-off %s restarting failed container %s", c.backOff, spec.Name)
	}
	if wait := time.Until(c.notBefore); wait > 0 {
		return wait
	}
	img, wait := w.image(spec.Image, spec.ImagePullPolicy)
	if img == nil {
		c.reason, c.message = wait.reason, wait.message
		return wait.due
	}
	return w.startContainer(ctx, spec, c, img)
}

func (w *worker) restarts(c *container) bool {
	switch w.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return c.Ended.ExitCode != 0
	}
	return true
}

// retire makes room for the next instance: the ended one becomes the previous one, whose log is kept.
func (w *worker) retire(ctx context.Context, c *container) {
	if p := w.currentSandbox(); p != nil && c.Previous != "" {
		_ = p.Remove(ctx, c.Previous) // its files go with the Pod at the latest
	}
	c.Previous, c.ID = c.ID, ""
	c.Last, c.Ended = c.Ended, nil
	c.Restarts++
}

func (w *worker) startContainer(ctx context.Context, spec *corev1.Container, c *container, img *image.Image) time.Duration {
	if !w.hold(img) {
		return 0 // removed meanwhile: the next pass pulls it again
	}
	config, err := w.config(ctx, spec, img)
	if err != nil {
		c.reason, c.message = "CreateContainerConfigError", err.Error()
		return 2 * time.Second
	}
	config.ID = newContainerID()
	c.ID, c.Image, c.ImageID = config.ID, spec.Image, img.ID
	c.Started = time.Now()
	if err := w.save(); err != nil {
		c.reason, c.message = "CreateContainerError", err.Error()
		return retryPass
	}
	p := w.currentSandbox()
	if err := p.Start(ctx, config); err != nil {
		if errors.Is(err, runtime.ErrGone) || ctx.Err() != nil {
			return retryPass
		}
		w.exited(c, &corev1.ContainerStateTerminated{
			ExitCode: 128, Reason: "StartError", Message: err.Error(), ContainerID: containerIDPrefix + c.ID,
			StartedAt: metav1.NewTime(c.Started), FinishedAt: metav1.Now(),
		})
		if !w.restarts(c) {
			return 0
		}
		w.retire(ctx, c)
		c.state, c.reason, c.message = waiting, "RunContainerError", err.Error()
		if c.notBefore.IsZero() {
			c.notBefore = time.Now().Add(retryPass)
		}
		return time.Until(c.notBefore)
	}
	c.state, c.reason, c.message = running, "", ""
	w.startProbes(spec, c)
	return idlePass
}

// kill ends a container at once and waits for it.
func (w *worker) kill(ctx context.Context, cs ...*container) error {
	p := w.currentSandbox()
	if p == nil {
		return nil
	}
	open := map[string]bool{}
	for _, c := range cs {
		w.stopProbe(c)
		if c.state != running {
			continue
		}
		if err := p.Signal(ctx, c.ID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		open[c.ID] = true
	}
	limit := time.NewTimer(killLimit)
	defer limit.Stop()
	for len(open) > 0 {
		select {
		case s := <-p.Exits():
			w.ended(s)
			delete(open, s.ID)
		case <-p.Done():
			return runtime.ErrGone
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("the kernel did not end a killed container within %s", killLimit)
		}
	}
	return nil
}

// ended takes note of a container's end.
func (w *worker) ended(s runtime.ContainerState) {
	for _, c := range w.containers {
		if c.ID != s.ID || c.state != running {
			continue
		}
		w.stopProbe(c)
		t := &corev1.ContainerStateTerminated{
			ExitCode: int32(s.Code), Signal: 0, Reason: "Completed", ContainerID: containerIDPrefix + s.ID,
			StartedAt: metav1.NewTime(s.StartedAt), FinishedAt: metav1.NewTime(s.EndedAt),
		}
		switch {
		case s.OOMKilled:
			t.Reason = "OOMKilled"
		case s.Code != 0:
			t.Reason = "Error"
		}
		w.exited(c, t)
		if w.reset.id != "" {
			continue // the start that follows puts it on record
		}
		if err := w.save(); err != nil {
			w.log().Error("the end of a container is not on record", "error", err)
		}
	}
}

// exited moves a container to its end and works out when it may start again.
func (w *worker) exited(c *container, t *corev1.ContainerStateTerminated) {
	w.stopProbe(c)
	c.state, c.Ended, c.started, c.ready = ended, t, false, false
	clear(w.refs) // secrets may have changed by the time of the restart
	if time.Since(c.Started) > calmRun {
		c.backOff = 0
	}
	c.notBefore = time.Time{}
	if c.backOff > 0 {
		c.notBefore = time.Now().Add(c.backOff)
	}
	c.backOff = min(max(2*c.backOff, firstBackOff), maxBackOff)
}

// waitAll says for every container that does not run why it does not.
func (w *worker) waitAll(reason, message string) {
	for _, list := range [][]corev1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			if c := w.container(list[i].Name); c.state == waiting {
				c.reason, c.message = reason, message
			}
		}
	}
}

// save puts the state on record. From then on the images that it names are held, and no others.
func (w *worker) save() error {
	w.recordMu.Lock()
	err := w.state.save(w.dir)
	w.recordMu.Unlock()
	if err != nil {
		return err
	}
	w.setImages(w.state.images())
	return nil
}

// record is what was saved last, for those that are not the worker's goroutine.
func (w *worker) record() (*podState, error) {
	w.recordMu.Lock()
	defer w.recordMu.Unlock()
	return loadState(w.dir)
}
