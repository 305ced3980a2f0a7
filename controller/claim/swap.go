package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pullErrors are the waiting reasons with which a kubelet reports that an image cannot be had.
var pullErrors = map[string]bool{
	"ErrImagePull":              true,
	"ImagePullBackOff":          true,
	"InvalidImageName":          true,
	"ErrImageNeverPull":         true,
	"RegistryUnavailable":       true,
	"ImageInspectError":         true,
	"SignatureValidationFailed": true,
}

// startErrors are the waiting reasons with which a kubelet reports that a container cannot be started.
var startErrors = map[string]bool{
	"CreateContainerConfigError": true,
	"CreateContainerError":       true,
	"RunContainerError":          true,
	"CrashLoopBackOff":           true,
	"PreStartHookError":          true,
	"PostStartHookError":         true,
}

// awaitSwap waits until the main container runs the image that the claim wrote. What the kubelet reports as a
// failure is reported at once, in its own words.
func (m *Manager) awaitSwap(ctx context.Context, sb *sandbox, budget time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, budget, errPullBudget)
	defer cancel()
	var image string
	_, err := m.await(ctx, sb.pod, func(pod *corev1.Pod) (bool, error) {
		image = pod.Spec.Containers[0].Image
		return swapped(pod, sb.swap)
	})
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, errPullBudget) || errors.Is(cause, errStartupTimeout)) {
		return &Error{
			Code:       CodePullTimeout,
			Message:    fmt.Sprintf("image %q did not arrive within its pull budget of %s", image, budget.Round(time.Millisecond)),
			Hint:       "allow a longer startup timeout for a large image, or use an image that the nodes hold already",
			RetryAfter: 10 * time.Second,
		}
	}
	return err
}

// swapped reports whether the main container has been replaced by one of the image in the spec.
func swapped(pod *corev1.Pod, before *containerBefore) (bool, error) {
	s := mainStatus(pod)
	if s == nil {
		return false, nil
	}
	target := pod.Spec.Containers[0].Image
	if w := s.State.Waiting; w != nil {
		switch {
		case pullErrors[w.Reason]:
			return false, &Error{
				Code:    CodePullFailed,
				Message: fmt.Sprintf("image %q cannot be pulled: %s: %s", target, w.Reason, clipMessage(w.Message)),
				Hint:    "check the image's name and tag, and the environment's pull secret",
			}
		case startErrors[w.Reason]:
			return false, &Error{
				Code:    CodeStartFailed,
				Message: fmt.Sprintf("the container of image %q cannot start: %s: %s", target, w.Reason, clipMessage(w.Message)),
				Hint:    "check that the image fits the template's command and user",
			}
		}
		return false, nil
	}
	if s.State.Running == nil || s.ContainerID == before.containerID {
		return false, nil
	}
	// Another container runs. It is the new image's when the kubelet says so by name, by digest, or by having seen
	// this generation of the spec; it could also be a restart of the old one. Equal digests under two names, where
	// only the name changed, are told by the first and the last.
	return sameImage(s.Image, target) || s.ImageID != before.imageID ||
		pod.Status.ObservedGeneration != 0 && pod.Status.ObservedGeneration >= pod.Generation, nil
}
