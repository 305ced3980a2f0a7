package record

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// LabelRecords marks the ConfigMaps of the store.
	LabelRecords = "agentbox.navix.sh/sandbox-records"
	dataKey      = "records.jsonl"

	// maxBatchBytes keeps a merged ConfigMap well under the 1 MiB that Kubernetes allows.
	maxBatchBytes = 512 << 10
	// maxBatchRecords bounds one write; a record with the largest metadata the API accepts is about 16 KiB.
	maxBatchRecords = 32
	// mergeAt is how many small batches gather before they are merged into one.
	mergeAt = 32
)

// batches is the durable side of the store. Only the goroutine of Store.Run (and Load before it) uses it, except
// that forget is called with the store's lock held by that same goroutine.
type batches struct {
	client    client.Client
	namespace string
	log       *slog.Logger

	live  []*batch          // oldest first
	owner map[string]*batch // record id → the batch that holds it
}

type batch struct {
	name  string
	bytes int
	ids   map[string]struct{}
}

func newBatchName(now time.Time) string {
	var r [5]byte
	_, _ = rand.Read(r[:]) // crypto/rand.Read never fails
	return fmt.Sprintf("sandbox-records-%012x-%s", now.UnixMilli(), hex.EncodeToString(r[:]))
}

func (b *batches) load(ctx context.Context) ([]*Record, error) {
	var list corev1.ConfigMapList
	if err := b.client.List(ctx, &list, client.InNamespace(b.namespace), client.HasLabels{LabelRecords}); err != nil {
		return nil, err
	}
	// Names sort by time. A merged batch is younger than its parts and takes their records over here, in case the
	// process died before it deleted them.
	slices.SortFunc(list.Items, func(x, y corev1.ConfigMap) int {
		if x.Name < y.Name {
			return -1
		}
		return 1
	})
	b.live, b.owner = nil, map[string]*batch{}
	var all []*Record
	for i := range list.Items {
		cm := &list.Items[i]
		records, damaged := decode([]byte(cm.Data[dataKey]))
		if damaged > 0 {
			b.log.Warn("lines of a record batch cannot be read and are left out", "configmap", cm.Name, "lines", damaged)
		}
		b.add(cm.Name, len(cm.Data[dataKey]), records)
		all = append(all, records...)
	}
	return all, nil
}

func (b *batches) add(name string, size int, records []*Record) {
	n := &batch{name: name, bytes: size, ids: make(map[string]struct{}, len(records))}
	if b.owner == nil {
		b.owner = map[string]*batch{}
	}
	for _, r := range records {
		b.forget(r.SandboxID)
		n.ids[r.SandboxID] = struct{}{}
		b.owner[r.SandboxID] = n
	}
	b.live = append(b.live, n)
}

func (b *batches) forget(id string) {
	if o := b.owner[id]; o != nil {
		delete(o.ids, id)
		delete(b.owner, id)
	}
}

// write makes a batch durable. Writing the same name again is success: the first write arrived.
func (b *batches) write(ctx context.Context, name string, records []*Record) error {
	data, err := encode(records)
	if err != nil {
		return err
	}
	err = b.client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace, Labels: map[string]string{LabelRecords: "v1"}},
		Data:       map[string]string{dataKey: string(data)},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create configmap %s/%s: %w", b.namespace, name, err)
	}
	b.add(name, len(data), records)
	return nil
}

// tidy deletes empty batches and merges small ones.
func (b *batches) tidy(ctx context.Context, now time.Time, lookup func(id string) *Record) error {
	var errs []error
	b.live = slices.DeleteFunc(b.live, func(x *batch) bool {
		if len(x.ids) > 0 {
			return false
		}
		if err := b.remove(ctx, x); err != nil {
			errs = append(errs, err)
			return false
		}
		return true
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var small []*batch
	size := 0
	for _, x := range b.live {
		if x.bytes < maxBatchBytes/2 && size+x.bytes <= maxBatchBytes {
			small = append(small, x)
			size += x.bytes
		}
	}
	if len(small) < mergeAt {
		return nil
	}
	var merged []*Record
	for _, x := range small {
		for id := range x.ids {
			if r := lookup(id); r != nil {
				merged = append(merged, r)
			}
		}
	}
	// The new batch is written before the old ones go; the next tidy deletes those, empty now.
	return b.write(ctx, newBatchName(now), merged)
}

func (b *batches) remove(ctx context.Context, x *batch) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: x.name, Namespace: b.namespace}}
	if err := b.client.Delete(ctx, cm); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete configmap %s/%s: %w", b.namespace, x.name, err)
	}
	return nil
}
