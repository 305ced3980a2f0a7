package v1alpha1

// Prefix is the domain of the platform's own labels, annotations and finalizers.
const Prefix = "agentbox.navix.sh/"

// SystemNamespace holds the platform's own Secrets, records and leases.
const SystemNamespace = "agentbox-system"

// Labels of pools and Pods.
const (
	LabelPool         = Prefix + "sandbox-pool"
	LabelPhase        = Prefix + "sandbox-phase"
	LabelSandboxID    = Prefix + "sandbox-id"
	LabelManagedBy    = Prefix + "managed-by"
	LabelTemplateHash = Prefix + "template-hash"
	LabelEnv          = Prefix + "env"
	LabelScalingGroup = Prefix + "scaling-group"
	LabelVaultOwner   = Prefix + "vault-owner"

	LabelTeam       = "scheduling.navix.sh/team"
	LabelUser       = "scheduling.navix.sh/user"
	LabelSyncSource = "agentbox.io/sync-source"
	// LabelQuotaURL is set by people, on pools.
	LabelQuotaURL = "quota.scitix.ai/url"
)

// Labels of API key Secrets.
const (
	LabelKeyType      = "agentbox.io/type"
	LabelKeyNamespace = "agentbox.io/namespace"
	LabelKeyUser      = "agentbox.io/user"
	LabelKeyTeam      = "agentbox.io/team"
	LabelKeyHash      = "agentbox.io/token-hash"
)

// Values of labels.
const (
	// ManagedBySandboxAPI is the value of LabelManagedBy while a Pod is claimed.
	ManagedBySandboxAPI = "sandbox-api-server"
	// SyncSourceGlobal is the value of LabelSyncSource on objects that come from the hub.
	SyncSourceGlobal = "global"
	// KeyTypeAPIKey is the value of LabelKeyType on API key Secrets.
	KeyTypeAPIKey = "api-key"
)

// PodPhase is the value of LabelPhase: where a pool Pod is in the life of a sandbox.
type PodPhase string

// The phases of a pool Pod. A Pod with an unknown phase counts as idle.
const (
	PodIdle     PodPhase = "idle"
	PodStarting PodPhase = "starting"
	PodRunning  PodPhase = "running"
	PodStopping PodPhase = "stopping"
	PodFailed   PodPhase = "failed"
)

// Annotations of a Pod that hold one claim. A release strips them.
const (
	AnnotationSandboxID = Prefix + "sandbox-id"
	// AnnotationClaimedAt and AnnotationStartedAt are RFC 3339.
	AnnotationClaimedAt = Prefix + "claimed-at"
	AnnotationStartedAt = Prefix + "started-at"
	// AnnotationIdleTimeout and AnnotationStartupTimeout are whole seconds.
	AnnotationIdleTimeout    = Prefix + "idle-timeout"
	AnnotationStartupTimeout = Prefix + "startup-timeout"
	// AnnotationTimeoutMode is "idle" or "absolute".
	AnnotationTimeoutMode = Prefix + "timeout-mode"
	AnnotationLastActive  = Prefix + "last-active"
	// AnnotationMetadata is a JSON object of strings.
	AnnotationMetadata = Prefix + "sandbox-metadata"
	// AnnotationManagedLabelKeys and AnnotationManagedAnnotationKeys are JSON lists of keys that a release strips.
	AnnotationManagedLabelKeys      = Prefix + "managed-label-keys"
	AnnotationManagedAnnotationKeys = Prefix + "managed-annotation-keys"
	// AnnotationPostStartHooks is a JSON list of actions.
	AnnotationPostStartHooks = Prefix + "post-start-hooks"
	AnnotationEgressPolicy   = Prefix + "egress-policy"
	// AnnotationEgressInject never holds a credential's value.
	AnnotationEgressInject = Prefix + "egress-inject"
	// AnnotationArmed is the sandbox id once envd holds the sandbox's environment and token.
	AnnotationArmed    = Prefix + "sandbox-armed"
	AnnotationArmError = Prefix + "sandbox-arm-error"
	// AnnotationInPlaceUpdate is the JSON state of an image swap.
	AnnotationInPlaceUpdate = Prefix + "inplace-update-state"
)

// Annotations of a Pod that say how its sandbox ended. They stay until the record is durable.
const (
	AnnotationStopReason     = Prefix + "stop-reason"
	AnnotationTerminatedAt   = Prefix + "terminated-at"
	AnnotationFailureReason  = Prefix + "failure-reason"
	AnnotationFailureMessage = Prefix + "failure-message"
	AnnotationExitCode       = Prefix + "exit-code"
	// AnnotationRunningImages is a JSON object: container name to image.
	AnnotationRunningImages = Prefix + "running-images"
	AnnotationContainerID   = Prefix + "container-id"
)

// ReasonPlatformStopped is why a container ended whose node agent was stopped with the platform, and why its sandbox did.
const ReasonPlatformStopped = "PlatformStopped"

// Annotations about resetting a used Pod.
const (
	// AnnotationPodReset on a Node names the reset protocol that its agent speaks.
	AnnotationPodReset = Prefix + "pod-reset"
	// PodResetV1 is the value of AnnotationPodReset for the protocol of AnnotationResetID and PodConditionReset.
	PodResetV1 = "v1"
	// AnnotationResetID asks the node agent to reset the Pod; the value is the id of the sandbox that it held.
	AnnotationResetID = Prefix + "reset-id"
	// PodConditionReset is True with the reset id as its message once the Pod is clean, False when it cannot be.
	PodConditionReset = Prefix + "Reset"
)

// Annotations of pools and Pods about scaling and provenance.
const (
	// AnnotationScaleDownProtected is RFC 3339: the Pod is deleted after this time unless it is claimed.
	AnnotationScaleDownProtected = Prefix + "scale-down-protected"
	// AnnotationLastSandboxCreateTime is on the pool, RFC 3339.
	AnnotationLastSandboxCreateTime = Prefix + "last-sandbox-create-time"
	AnnotationTemplateName          = Prefix + "template-name"
	AnnotationTemplateVersion       = Prefix + "template-version"
	// AnnotationGivenKeys is on the pool, JSON: the keys that template and env gave pool and Pods last.
	AnnotationGivenKeys = Prefix + "given-keys"
	// AnnotationReservationReplicaQuota is JSON: instance type to count.
	AnnotationReservationReplicaQuota = "scheduling.navix.sh/reservation-replica-quota"
)

// Annotations of templates.
const (
	// AnnotationDocs is Markdown with placeholders, shown by an environment's docs.
	AnnotationDocs = Prefix + "docs"
	// AnnotationPoolDocs is from older manifests and is ignored.
	AnnotationPoolDocs = Prefix + "pool-docs"
	// AnnotationRegistryRewrite and AnnotationAllowUnenforceableReadOnlyVolumes are booleans; anything else is false.
	AnnotationRegistryRewrite                   = Prefix + "registry-rewrite"
	AnnotationAllowUnenforceableReadOnlyVolumes = Prefix + "allow-unenforceable-readonly-volumes"
)

// Annotations of vault Secrets.
const (
	AnnotationVaultUser = Prefix + "vault-user"
	AnnotationVaultMeta = Prefix + "vault-meta"
)

// Finalizers.
const (
	FinalizerPool = Prefix + "finalizer"
	FinalizerPod  = Prefix + "sandbox-protection"
)

// Condition types of an environment.
const (
	EnvConditionReady              = "Ready"
	EnvConditionTemplateConsistent = "TemplateConsistent"
	EnvConditionAutoscalingActive  = "AutoscalingActive"
)

// Condition types of a pool.
const (
	PoolConditionAvailable = "Available"
	PoolConditionScaling   = "Scaling"
	PoolConditionDegraded  = "Degraded"
	PoolConditionAdmitted  = "Admitted"
)

// Reasons of pool conditions.
const (
	ReasonScalingUp              = "ScalingUp"
	ReasonScalingDown            = "ScalingDown"
	ReasonReplicasReady          = "ReplicasReady"
	ReasonIdlePodsAvailable      = "IdlePodsAvailable"
	ReasonNoIdlePodsAvailable    = "NoIdlePodsAvailable"
	ReasonUnhealthyIdlePods      = "UnhealthyIdlePods"
	ReasonFailedPodsPresent      = "FailedPodsPresent"
	ReasonUnhealthyAndFailedPods = "UnhealthyAndFailedPods"
	ReasonPodsFailing            = "PodsFailing"
	ReasonAllPodsHealthy         = "AllPodsHealthy"
	ReasonAdmissionGranted       = "AdmissionGranted"
	ReasonResourceQuotaExhausted = "ResourceQuotaExhausted"
	ReasonAdmissionRejected      = "AdmissionRejected"
	ReasonAdmissionError         = "AdmissionError"
)
