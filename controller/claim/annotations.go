package claim

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// Annotations of a claim that only this package reads and writes.
const (
	// annotationSecrets holds the sandbox's tokens, sealed.
	annotationSecrets = v1alpha1.Prefix + "sandbox-secrets"
	// annotationEndAt is the deadline of an absolute timeout, RFC 3339.
	annotationEndAt = v1alpha1.Prefix + "end-at"
	// annotationPrivateTraffic is "true" when every port but envd's demands the traffic token.
	annotationPrivateTraffic = v1alpha1.Prefix + "private-traffic"
	// annotationPriorOwner is a JSON object with the values of the owner labels before the claim.
	annotationPriorOwner = v1alpha1.Prefix + "pool-owner"
)

// claimAnnotations are stripped when a Pod returns to its pool.
var claimAnnotations = []string{
	v1alpha1.AnnotationSandboxID, v1alpha1.AnnotationClaimedAt, v1alpha1.AnnotationStartedAt,
	v1alpha1.AnnotationIdleTimeout, v1alpha1.AnnotationStartupTimeout, v1alpha1.AnnotationTimeoutMode,
	v1alpha1.AnnotationLastActive, v1alpha1.AnnotationMetadata, v1alpha1.AnnotationArmed,
	v1alpha1.AnnotationArmError, v1alpha1.AnnotationStopReason, v1alpha1.AnnotationTerminatedAt,
	v1alpha1.AnnotationFailureReason, v1alpha1.AnnotationFailureMessage, v1alpha1.AnnotationExitCode,
	v1alpha1.AnnotationRunningImages, v1alpha1.AnnotationContainerID,
	annotationSecrets, annotationEndAt, annotationPrivateTraffic, annotationPriorOwner,
}

const (
	maxMetadataBytes       = 16 << 10
	maxFailureMessageBytes = 1024
)

// phaseOf reads the phase label; an unknown value counts as idle.
func phaseOf(pod *corev1.Pod) v1alpha1.PodPhase {
	switch p := v1alpha1.PodPhase(pod.Labels[v1alpha1.LabelPhase]); p {
	case v1alpha1.PodStarting, v1alpha1.PodRunning, v1alpha1.PodStopping, v1alpha1.PodFailed:
		return p
	default:
		return v1alpha1.PodIdle
	}
}

// writeClaim puts a new claim on an idle Pod. It is the whole content of the claim's compare-and-swap.
func writeClaim(pod *corev1.Pod, sb *Sandbox, startup time.Duration, sealed string, private bool) error {
	metadata, err := json.Marshal(sb.Metadata)
	if err != nil {
		return err
	}
	prior := map[string]string{}
	for _, key := range []string{v1alpha1.LabelTeam, v1alpha1.LabelUser} {
		if v, ok := pod.Labels[key]; ok {
			prior[key] = v
		}
	}
	priorOwner, err := json.Marshal(prior)
	if err != nil {
		return err
	}
	labels := map[string]string{
		v1alpha1.LabelPhase:     string(v1alpha1.PodStarting),
		v1alpha1.LabelSandboxID: sb.ID,
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBySandboxAPI,
	}
	if sb.Owner.Team != "" {
		labels[v1alpha1.LabelTeam] = sb.Owner.Team
	}
	if sb.Owner.User != "" {
		labels[v1alpha1.LabelUser] = sb.Owner.User
	}
	annotations := map[string]string{
		v1alpha1.AnnotationSandboxID:      sb.ID,
		v1alpha1.AnnotationClaimedAt:      formatTime(sb.ClaimedAt),
		v1alpha1.AnnotationStartupTimeout: formatSeconds(startup),
		v1alpha1.AnnotationTimeoutMode:    string(sb.TimeoutMode),
		annotationSecrets:                 sealed,
		annotationPriorOwner:              string(priorOwner),
	}
	if len(sb.Metadata) > 0 {
		annotations[v1alpha1.AnnotationMetadata] = string(metadata)
	}
	if private {
		annotations[annotationPrivateTraffic] = "true"
	}
	pod.Labels = merged(pod.Labels, labels)
	pod.Annotations = merged(pod.Annotations, annotations)
	writeTimeout(pod, sb)
	delete(pod.Annotations, v1alpha1.AnnotationScaleDownProtected)
	pod.Spec.Containers[0].Image = sb.Images[pod.Spec.Containers[0].Name]
	addFinalizer(pod)
	return nil
}

// writeTimeout records when the sandbox ends.
func writeTimeout(pod *corev1.Pod, sb *Sandbox) {
	setOrDelete(pod.Annotations, v1alpha1.AnnotationIdleTimeout, sb.Timeout > 0, formatSeconds(sb.Timeout))
	setOrDelete(pod.Annotations, v1alpha1.AnnotationLastActive, !sb.LastActive.IsZero(), formatTime(sb.LastActive))
	absolute := sb.TimeoutMode == TimeoutAbsolute && !sb.EndAt.IsZero()
	setOrDelete(pod.Annotations, annotationEndAt, absolute, formatTime(sb.EndAt))
}

// writeArmed records that envd holds the sandbox's environment and token.
func writeArmed(pod *corev1.Pod, sb *Sandbox) {
	pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodRunning)
	writeStart(pod, sb)
	writeTimeout(pod, sb)
}

func writeStart(pod *corev1.Pod, sb *Sandbox) {
	pod.Annotations[v1alpha1.AnnotationArmed] = sb.ID
	pod.Annotations[v1alpha1.AnnotationStartedAt] = formatTime(sb.StartedAt)
	pod.Annotations[v1alpha1.AnnotationContainerID] = sb.ContainerID
}

// writeStop records how the sandbox ended.
func writeStop(pod *corev1.Pod, sb *Sandbox) error {
	images, err := json.Marshal(sb.Images)
	if err != nil {
		return err
	}
	pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodStopping)
	if sb.Armed {
		writeStart(pod, sb) // it may have ended before that was written
	}
	a := pod.Annotations
	delete(a, annotationSecrets)
	a[v1alpha1.AnnotationStopReason] = string(sb.Status)
	a[v1alpha1.AnnotationTerminatedAt] = formatTime(sb.TerminatedAt)
	a[v1alpha1.AnnotationRunningImages] = string(images)
	setOrDelete(a, v1alpha1.AnnotationFailureReason, sb.FailureReason != "", sb.FailureReason)
	setOrDelete(a, v1alpha1.AnnotationFailureMessage, sb.FailureMessage != "", sb.FailureMessage)
	if sb.ExitCode != nil {
		a[v1alpha1.AnnotationExitCode] = strconv.Itoa(int(*sb.ExitCode))
	}
	return nil
}

// writeIdle strips the claim from a Pod that is clean again.
func writeIdle(pod *corev1.Pod) {
	var prior map[string]string
	_ = json.Unmarshal([]byte(pod.Annotations[annotationPriorOwner]), &prior)
	for _, key := range []string{v1alpha1.LabelTeam, v1alpha1.LabelUser} {
		v, ok := prior[key]
		setOrDelete(pod.Labels, key, ok, v)
	}
	delete(pod.Labels, v1alpha1.LabelSandboxID)
	delete(pod.Labels, v1alpha1.LabelManagedBy)
	pod.Labels[v1alpha1.LabelPhase] = string(v1alpha1.PodIdle)
	for _, key := range claimAnnotations {
		delete(pod.Annotations, key)
	}
	removeFinalizer(pod)
}

// readClaim rebuilds a sandbox, finished or not, from its Pod. It never fails: a damaged annotation reads as absent.
func readClaim(pod *corev1.Pod) Sandbox {
	a := pod.Annotations
	sb := Sandbox{
		ID:             a[v1alpha1.AnnotationSandboxID],
		Owner:          Owner{Namespace: pod.Namespace, Team: pod.Labels[v1alpha1.LabelTeam], User: pod.Labels[v1alpha1.LabelUser]},
		Env:            pod.Labels[v1alpha1.LabelEnv],
		Pool:           pod.Labels[v1alpha1.LabelPool],
		Group:          pod.Labels[v1alpha1.LabelScalingGroup],
		Pod:            pod.Name,
		PodIP:          pod.Status.PodIP,
		Node:           pod.Spec.NodeName,
		ClaimedAt:      parseTime(a[v1alpha1.AnnotationClaimedAt]),
		StartedAt:      parseTime(a[v1alpha1.AnnotationStartedAt]),
		TerminatedAt:   parseTime(a[v1alpha1.AnnotationTerminatedAt]),
		LastActive:     parseTime(a[v1alpha1.AnnotationLastActive]),
		EndAt:          parseTime(a[annotationEndAt]),
		Timeout:        parseSeconds(a[v1alpha1.AnnotationIdleTimeout]),
		TimeoutMode:    TimeoutMode(a[v1alpha1.AnnotationTimeoutMode]),
		ContainerID:    a[v1alpha1.AnnotationContainerID],
		FailureReason:  a[v1alpha1.AnnotationFailureReason],
		FailureMessage: a[v1alpha1.AnnotationFailureMessage],
		Images:         map[string]string{},
	}
	if sb.ID == "" {
		sb.ID = pod.Labels[v1alpha1.LabelSandboxID]
	}
	if sb.TimeoutMode != TimeoutAbsolute {
		sb.TimeoutMode = TimeoutIdle
	}
	sb.Armed = sb.ID != "" && a[v1alpha1.AnnotationArmed] == sb.ID
	switch phaseOf(pod) {
	case v1alpha1.PodRunning:
		sb.Status = StatusRunning
	case v1alpha1.PodStopping:
		sb.Status = StatusStopping
	default:
		sb.Status = StatusStarting
	}
	_ = json.Unmarshal([]byte(a[v1alpha1.AnnotationMetadata]), &sb.Metadata)
	if err := json.Unmarshal([]byte(a[v1alpha1.AnnotationRunningImages]), &sb.Images); err != nil || len(sb.Images) == 0 {
		sb.Images = imagesOf(pod)
	}
	if code, err := strconv.ParseInt(a[v1alpha1.AnnotationExitCode], 10, 32); err == nil {
		c := int32(code)
		sb.ExitCode = &c
	}
	sb.CPU, sb.Memory = sizeOf(pod)
	return sb
}

func imagesOf(pod *corev1.Pod) map[string]string {
	images := make(map[string]string, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		images[pod.Spec.Containers[i].Name] = pod.Spec.Containers[i].Image
	}
	return images
}

// sizeOf returns the main container's limits, or what it requests where it has none.
func sizeOf(pod *corev1.Pod) (cpu, memory string) {
	if len(pod.Spec.Containers) == 0 {
		return "", ""
	}
	r := pod.Spec.Containers[0].Resources
	pick := func(name corev1.ResourceName) string {
		if q, ok := r.Limits[name]; ok {
			return q.String()
		}
		if q, ok := r.Requests[name]; ok {
			return q.String()
		}
		return ""
	}
	return pick(corev1.ResourceCPU), pick(corev1.ResourceMemory)
}

func addFinalizer(pod *corev1.Pod) {
	for _, f := range pod.Finalizers {
		if f == v1alpha1.FinalizerPod {
			return
		}
	}
	pod.Finalizers = append(pod.Finalizers, v1alpha1.FinalizerPod)
}

func removeFinalizer(pod *corev1.Pod) (removed bool) {
	kept := make([]string, 0, len(pod.Finalizers))
	for _, f := range pod.Finalizers {
		if f != v1alpha1.FinalizerPod {
			kept = append(kept, f)
		}
	}
	removed = len(kept) != len(pod.Finalizers)
	pod.Finalizers = kept
	return removed
}

func merged(base, add map[string]string) map[string]string {
	if base == nil {
		base = make(map[string]string, len(add))
	}
	for k, v := range add {
		base[k] = v
	}
	return base
}

func setOrDelete(m map[string]string, key string, set bool, value string) {
	if set {
		m[key] = value
	} else {
		delete(m, key)
	}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// formatSeconds rounds up, so that what is read back is never shorter.
func formatSeconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
}

// parseSeconds accepts what fits a time.Duration; anything else reads as absent.
func parseSeconds(s string) time.Duration {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(time.Second) {
		return 0
	}
	return time.Duration(n) * time.Second
}

// clipMessage makes outside text fit an annotation: valid UTF-8, at most maxFailureMessageBytes.
func clipMessage(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= maxFailureMessageBytes {
		return s
	}
	cut := maxFailureMessageBytes
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// checkMetadata refuses what would not fit the Pod.
func checkMetadata(metadata map[string]string) error {
	size := 0
	for k, v := range metadata {
		size += len(k) + len(v)
	}
	if size > maxMetadataBytes {
		return &Error{
			Code:    CodeInvalid,
			Message: fmt.Sprintf("the metadata has %d bytes; at most %d are kept with a sandbox", size, maxMetadataBytes),
			Hint:    "keep large values in a file of the sandbox and only a key here",
		}
	}
	return nil
}
