package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventTTL is how long an event lives, in seconds: an hour, as on a cluster.
const eventTTL = 3600

func eventResource() *resource {
	return &resource{
		version: "v1", plural: "events", singular: "event", shortNames: []string{"ev"}, namespaced: true,
		newObject: object[corev1.Event], newList: object[corev1.EventList],
		ttlSeconds: eventTTL,
		fields: func(obj runtime.Object) fields.Set {
			e := obj.(*corev1.Event)
			return fields.Set{
				"involvedObject.kind":            e.InvolvedObject.Kind,
				"involvedObject.namespace":       e.InvolvedObject.Namespace,
				"involvedObject.name":            e.InvolvedObject.Name,
				"involvedObject.uid":             string(e.InvolvedObject.UID),
				"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
				"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
				"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
				"reason":                         e.Reason,
				"reportingComponent":             e.ReportingController,
				"source":                         e.Source.Component,
				"type":                           e.Type,
			}
		},
		columns: eventColumns,
	}
}

// registerEvents makes events.k8s.io a second form of the events in core/v1, which are what is stored.
func registerEvents() {
	register(eventsv1.SchemeGroupVersion)
	published.AddKnownTypes(eventsv1.SchemeGroupVersion, &eventsv1.Event{}, &eventsv1.EventList{})
	scheme.AddKnownTypes(eventsv1.SchemeGroupVersion, &eventsv1.Event{}, &eventsv1.EventList{})
	scheme.AddKnownTypes(schema.GroupVersion{Group: eventsv1.GroupName, Version: runtime.APIVersionInternal}, &corev1.Event{}, &corev1.EventList{})
	convert(fromEventsV1)
	convert(toEventsV1)
	convert(func(in *eventsv1.EventList, out *corev1.EventList) {
		out.ListMeta, out.Items = in.ListMeta, convertAll(in.Items, fromEventsV1)
	})
	convert(func(in *corev1.EventList, out *eventsv1.EventList) {
		out.ListMeta, out.Items = in.ListMeta, convertAll(in.Items, toEventsV1)
	})
}

func convert[In, Out any](f func(in *In, out *Out)) {
	err := scheme.AddConversionFunc((*In)(nil), (*Out)(nil), func(in, out any, _ conversion.Scope) error {
		f(in.(*In), out.(*Out))
		return nil
	})
	if err != nil {
		panic(err) // both are pointers
	}
}

func convertAll[In, Out any](in []In, f func(in *In, out *Out)) []Out {
	out := make([]Out, len(in))
	for i := range in {
		f(&in[i], &out[i])
	}
	return out
}

func fromEventsV1(in *eventsv1.Event, out *corev1.Event) {
	*out = corev1.Event{
		ObjectMeta: in.ObjectMeta, EventTime: in.EventTime, Type: in.Type, Reason: in.Reason, Action: in.Action,
		InvolvedObject: in.Regarding, Related: in.Related, Message: in.Note,
		ReportingController: in.ReportingController, ReportingInstance: in.ReportingInstance,
		Source: in.DeprecatedSource, Count: in.DeprecatedCount,
		FirstTimestamp: in.DeprecatedFirstTimestamp, LastTimestamp: in.DeprecatedLastTimestamp,
	}
	if in.Series != nil {
		out.Series = &corev1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
	// Readers of core/v1 sort by the older fields, so fill in those that only the newer form has.
	if out.Count == 0 && in.Series != nil {
		out.Count = in.Series.Count
		out.LastTimestamp = metav1.NewTime(in.Series.LastObservedTime.Time)
	}
	if out.FirstTimestamp.IsZero() {
		out.FirstTimestamp = metav1.NewTime(in.EventTime.Time)
	}
	if out.LastTimestamp.IsZero() {
		out.LastTimestamp = out.FirstTimestamp
	}
}

func toEventsV1(in *corev1.Event, out *eventsv1.Event) {
	*out = eventsv1.Event{
		ObjectMeta: in.ObjectMeta, EventTime: in.EventTime, Type: in.Type, Reason: in.Reason, Action: in.Action,
		Regarding: in.InvolvedObject, Related: in.Related, Note: in.Message,
		ReportingController: in.ReportingController, ReportingInstance: in.ReportingInstance,
		DeprecatedSource: in.Source, DeprecatedCount: in.Count,
		DeprecatedFirstTimestamp: in.FirstTimestamp, DeprecatedLastTimestamp: in.LastTimestamp,
	}
	if in.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}
