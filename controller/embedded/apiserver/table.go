package apiserver

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// columns are what kubectl shows of an object between its name and its age.
type columns struct {
	names []string
	cells func(obj runtime.Object) []any
}

var (
	podColumns = &columns{[]string{"Ready", "Status", "Restarts", "IP", "Node"}, func(obj runtime.Object) []any {
		p := obj.(*corev1.Pod)
		var ready, restarts int32
		for _, s := range p.Status.ContainerStatuses {
			restarts += s.RestartCount
			if s.Ready {
				ready++
			}
		}
		return []any{fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), podStatus(p), restarts, p.Status.PodIP, p.Spec.NodeName}
	}}
	namespaceColumns = &columns{[]string{"Status"}, func(obj runtime.Object) []any {
		return []any{string(obj.(*corev1.Namespace).Status.Phase)}
	}}
	nodeColumns = &columns{[]string{"Status", "Version"}, func(obj runtime.Object) []any {
		n := obj.(*corev1.Node)
		status := "NotReady"
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
		if n.Spec.Unschedulable {
			status += ",SchedulingDisabled"
		}
		return []any{status, n.Status.NodeInfo.KubeletVersion}
	}}
	eventColumns = &columns{[]string{"Type", "Reason", "Object", "Message"}, func(obj runtime.Object) []any {
		e := obj.(*corev1.Event)
		return []any{e.Type, e.Reason, strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name, e.Message}
	}}
	claimColumns = &columns{[]string{"Status", "Volume"}, func(obj runtime.Object) []any {
		c := obj.(*corev1.PersistentVolumeClaim)
		return []any{string(c.Status.Phase), c.Spec.VolumeName}
	}}
	leaseColumns = &columns{[]string{"Holder"}, func(obj runtime.Object) []any {
		holder := obj.(*coordinationv1.Lease).Spec.HolderIdentity
		if holder == nil {
			return []any{""}
		}
		return []any{*holder}
	}}
)

// podStatus is the one word that kubectl users know: what a container waits for or ended with goes before the phase.
func podStatus(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Reason != "" {
			return w.Reason
		}
		if t := s.State.Terminated; t != nil && t.Reason != "" {
			return t.Reason
		}
	}
	if p.Status.Reason != "" {
		return p.Status.Reason
	}
	return string(p.Status.Phase)
}

func (r *resource) table() rest.TableConvertor {
	if r.columns == nil {
		return rest.NewDefaultTableConvertor(r.groupResource())
	}
	return tableConvertor{r.columns}
}

type tableConvertor struct{ *columns }

func (c tableConvertor) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	t := &metav1.Table{}
	if m, err := meta.ListAccessor(obj); err == nil {
		t.ResourceVersion, t.Continue, t.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(), m.GetRemainingItemCount()
	} else if m, err := meta.CommonAccessor(obj); err == nil {
		t.ResourceVersion = m.GetResourceVersion()
	}
	var err error
	t.Rows, err = metatable.MetaToTableRow(obj, func(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
		cells := append([]any{name}, c.cells(obj)...)
		return append(cells, age), nil
	})
	if err != nil {
		return nil, err
	}
	if o, ok := options.(*metav1.TableOptions); ok && o.NoHeaders {
		return t, nil
	}
	t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name"})
	for _, name := range c.names {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: "Age", Type: "string"})
	return t, nil
}
