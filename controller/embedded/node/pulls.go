package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/embedded/image"
)

// pulled is a pull that runs, or what came of it.
type pulled struct {
	done     bool
	image    *image.Image
	err      *image.Error
	failedAt time.Time
	backOff  time.Duration
}

// imageWait says why an image is not there yet.
type imageWait struct {
	reason, message string
	due             time.Duration
}

// backOffAfter is how long a failed pull shows the registry's answer under its own reason.
const backOffAfter = time.Second

// image returns an image that is ready, or starts a pull and says what to wait for.
func (w *worker) image(ref string, policy corev1.PullPolicy) (*image.Image, imageWait) {
	w.mu.Lock()
	p := w.pulls[ref]
	w.mu.Unlock()
	if p == nil {
		img, err := w.agent.images.Local(ref, policy)
		if img != nil {
			return img, imageWait{}
		}
		p = &pulled{}
		if err != nil {
			p.fail(err)
		}
		w.mu.Lock()
		w.pulls[ref] = p
		w.mu.Unlock()
		if err == nil {
			w.startPull(ref, p)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !p.done:
		return nil, imageWait{"ContainerCreating", fmt.Sprintf("pulling image %q", ref), idlePass}
	case p.image != nil:
		// Used once: with the policy Always the next start asks the registry again.
		img := p.image
		delete(w.pulls, ref)
		return img, imageWait{}
	case !p.err.Retry:
		return nil, imageWait{p.err.Reason, p.err.Error(), idlePass}
	}
	since := time.Since(p.failedAt)
	if since < backOffAfter {
		return nil, imageWait{p.err.Reason, p.err.Error(), backOffAfter - since}
	}
	if since < p.backOff {
		message := fmt.Sprintf("Back-off pulling image %q: %s: %s", ref, p.err.Reason, p.err.Error())
		return nil, imageWait{"ImagePullBackOff", message, p.backOff - since}
	}
	p.done = false
	message := p.err.Error()
	go w.poke()
	w.startPullLocked(ref, p)
	return nil, imageWait{"ImagePullBackOff", message, idlePass}
}

func (p *pulled) fail(err error) {
	var e *image.Error
	if !errors.As(err, &e) {
		e = &image.Error{Reason: image.ReasonPull, Retry: true, Err: err}
	}
	p.done, p.err, p.failedAt = true, e, time.Now()
	p.backOff = min(max(2*p.backOff, firstBackOff), maxBackOff)
}

func (w *worker) startPull(ref string, p *pulled) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startPullLocked(ref, p)
}

// startPullLocked pulls without holding up the worker, which may have to end the Pod meanwhile.
func (w *worker) startPullLocked(ref string, p *pulled) {
	pod := w.pod
	ctx := w.agent.life
	w.agent.wg.Go(func() {
		img, err := w.pull(ctx, pod, ref)
		w.mu.Lock()
		if err != nil {
			p.fail(err)
		} else {
			p.done, p.image = true, img
		}
		w.mu.Unlock()
		w.poke()
	})
}

func (w *worker) pull(ctx context.Context, pod *corev1.Pod, ref string) (*image.Image, error) {
	var secrets []*corev1.Secret
	for _, s := range pod.Spec.ImagePullSecrets {
		secret, err := w.agent.client.CoreV1().Secrets(pod.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			w.log().Warn("a pull secret cannot be read; the pull goes on without it", "secret", s.Name, "error", err)
			continue
		}
		secrets = append(secrets, secret)
	}
	keys, err := image.Keychain(secrets)
	if err != nil {
		return nil, err
	}
	// What made the pull necessary has been decided: here the registry is asked.
	return w.agent.images.Ensure(ctx, ref, corev1.PullAlways, keys)
}
