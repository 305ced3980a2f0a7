package env

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// problem is why an env, or one member of it, cannot be served.
type problem struct{ reason, message string }

// Reasons of an env's conditions.
const (
	reasonPoolsAvailable    = "PoolsAvailable"
	reasonPoolsNotAvailable = "PoolsNotAvailable"
	reasonNoMembers         = "NoMembers"
	reasonScaledToZero      = "ScaledToZero"
	reasonTerminating       = "Terminating"
	reasonTemplateNotFound  = "TemplateNotFound"
	reasonInvalidMember     = "InvalidMember"
	reasonPoolConflict      = "PoolConflict"
	reasonModeNotServed     = "ModeNotImplemented"
	reasonConsistent        = "Consistent"
	reasonRollout           = "RolloutInProgress"
	reasonInconsistent      = "Inconsistent"
	reasonDisabled          = "Disabled"
	reasonNotActing         = "DecisionsNotImplemented"
)

// observe works out an env's status from the pools of its local members.
func observe(e *v1alpha1.SandboxEnv, clusterID, templateVersion string, pools map[string]*v1alpha1.SandboxPool, problems []problem) v1alpha1.SandboxEnvStatus {
	s := *e.Status.DeepCopy()
	s.ObservedGeneration = e.Generation
	s.MemberCount, s.DesiredReplicas, s.RunningReplicas, s.IdleReplicas = 0, 0, 0, 0
	groups := map[string]*v1alpha1.ScalingGroupStatus{}
	enabled := map[string]bool{}
	var order []string
	if e.Spec.Autoscaling != nil {
		for i := range e.Spec.Autoscaling.Groups {
			g := &e.Spec.Autoscaling.Groups[i]
			groups[g.Name] = &v1alpha1.ScalingGroupStatus{Name: g.Name}
			enabled[g.Name] = g.Enabled
			order = append(order, g.Name)
		}
	}
	local := v1alpha1.ClusterStatus{ClusterID: clusterID, IsLocal: true}
	rolling, inconsistent, unavailable := []string{}, []string{}, []string{}
	for _, segment := range e.Spec.Clusters {
		if segment.ClusterID != clusterID {
			continue
		}
		for i := range segment.Members {
			m := &segment.Members[i]
			o := observeMember(m, pools[m.Name], e.Spec.TemplateRef.Name, enabled[m.Config.ScalingGroup])
			o.TemplateVersion = templateVersion
			local.ObservedMembers = append(local.ObservedMembers, o)
			s.MemberCount++
			s.DesiredReplicas += o.DesiredReplicas
			s.RunningReplicas += o.RunningCount
			s.IdleReplicas += o.IdleCount
			if g := groups[o.ScalingGroup]; g != nil {
				g.TotalIdle += o.IdleCount
				g.TotalRunning += o.RunningCount
				g.TotalDesired += o.DesiredReplicas
			}
			if o.State == v1alpha1.MemberInconsistent {
				inconsistent = append(inconsistent, m.Name)
			}
			if o.UpdatedReplicas < o.CurrentReplicas {
				rolling = append(rolling, m.Name)
			}
			if p := pools[m.Name]; p == nil || o.DesiredReplicas > 0 && o.RunningCount == 0 &&
				!meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolConditionAvailable) {
				unavailable = append(unavailable, m.Name)
			}
		}
	}
	setCluster(&s, local)
	s.ScalingGroups = nil
	for _, name := range order {
		s.ScalingGroups = append(s.ScalingGroups, *groups[name])
	}
	setConditions(e, &s, problems, inconsistent, rolling, unavailable)
	return s
}

func observeMember(m *v1alpha1.Member, p *v1alpha1.SandboxPool, template string, autoscaling bool) v1alpha1.ObservedMember {
	o := v1alpha1.ObservedMember{
		Name: m.Name, InstanceType: m.Config.InstanceType, Multiplier: m.Config.Multiplier,
		ScalingGroup: m.Config.ScalingGroup, AutoscalingEnabled: autoscaling, State: v1alpha1.MemberMissing,
	}
	if m.Spec != nil {
		o.DesiredReplicas = m.Spec.Replicas
	}
	if p == nil {
		return o
	}
	o.State = v1alpha1.MemberActive
	if p.Spec.TemplateName != template {
		o.State = v1alpha1.MemberInconsistent
	}
	if len(p.Spec.Template.Spec.Containers) > 0 {
		o.EffectiveResources = p.Spec.Template.Spec.Containers[0].Resources.DeepCopy()
	}
	st := &p.Status
	o.DesiredReplicas = p.Spec.Replicas
	o.IdleCount, o.RunningCount = st.IdleReplicas, st.RunningReplicas
	o.CurrentReplicas = st.IdleReplicas + st.RunningReplicas + st.StartingReplicas + st.StoppingReplicas + st.FailedReplicas
	o.PendingRequests = st.PendingRequests
	o.UpdateRevision, o.UpdatedReplicas = st.UpdateRevision, st.UpdatedReplicas
	return o
}

// setCluster replaces the local cluster's share and leaves the others' alone. The snapshot time moves only when
// something else did, so that a status without news is not written.
func setCluster(s *v1alpha1.SandboxEnvStatus, local v1alpha1.ClusterStatus) {
	for i := range s.Clusters {
		if s.Clusters[i].ClusterID == local.ClusterID {
			local.LastSnapshotTime = s.Clusters[i].LastSnapshotTime
			s.Clusters[i] = local
			return
		}
	}
	s.Clusters = append(s.Clusters, local)
}

func setConditions(e *v1alpha1.SandboxEnv, s *v1alpha1.SandboxEnvStatus, problems []problem, inconsistent, rolling, unavailable []string) {
	set := func(kind string, ok bool, reason, message string) {
		status := metav1.ConditionFalse
		if ok {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: e.Generation,
		})
	}
	switch {
	case len(problems) > 0:
		var all []string
		for _, p := range problems {
			all = append(all, p.message)
		}
		set(v1alpha1.EnvConditionReady, false, problems[0].reason, strings.Join(all, "; "))
	case s.MemberCount == 0:
		set(v1alpha1.EnvConditionReady, false, reasonNoMembers, "the environment has no pool on this cluster; add a member")
	case s.DesiredReplicas == 0:
		set(v1alpha1.EnvConditionReady, false, reasonScaledToZero, "every pool is scaled to zero Pods, so that no sandbox can start; scale one up with `abx scale envs "+e.Name+" pools <pool> --replicas <n>`")
	case len(unavailable) > 0:
		set(v1alpha1.EnvConditionReady, false, reasonPoolsNotAvailable, "no idle Pod is ready yet in: "+strings.Join(unavailable, ", "))
	default:
		set(v1alpha1.EnvConditionReady, true, reasonPoolsAvailable, fmt.Sprintf("%d pools, %d idle Pods", s.MemberCount, s.IdleReplicas))
	}
	switch {
	case slices.ContainsFunc(problems, func(p problem) bool { return p.reason == reasonTemplateNotFound }):
		set(v1alpha1.EnvConditionTemplateConsistent, false, reasonTemplateNotFound, fmt.Sprintf("template %q does not exist", e.Spec.TemplateRef.Name))
	case len(inconsistent) > 0:
		set(v1alpha1.EnvConditionTemplateConsistent, false, reasonInconsistent, "pools of another template: "+strings.Join(inconsistent, ", "))
	case len(rolling) > 0:
		set(v1alpha1.EnvConditionTemplateConsistent, false, reasonRollout, "pools with Pods of an earlier revision: "+strings.Join(rolling, ", "))
	default:
		set(v1alpha1.EnvConditionTemplateConsistent, true, reasonConsistent, "every Pod is of the current revision")
	}
	set(v1alpha1.EnvConditionAutoscalingActive, false, autoscalingReason(e), autoscalingMessage(e))
}

func autoscalingEnabled(e *v1alpha1.SandboxEnv) bool {
	return e.Spec.Autoscaling != nil && slices.ContainsFunc(e.Spec.Autoscaling.Groups, func(g v1alpha1.ScalingGroup) bool { return g.Enabled })
}

func autoscalingReason(e *v1alpha1.SandboxEnv) string {
	if autoscalingEnabled(e) {
		return reasonNotActing
	}
	return reasonDisabled
}

func autoscalingMessage(e *v1alpha1.SandboxEnv) string {
	if autoscalingEnabled(e) {
		return "the policies are stored, but this release does not act on them yet; scale the pools by hand"
	}
	return "no scaling group is enabled"
}
