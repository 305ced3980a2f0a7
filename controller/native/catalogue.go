package native

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/catalogue"
)

func listInstanceTypes(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, access.Object{Kind: access.KindCatalogue}); err != nil {
		return nil, err
	}
	if !c.Catalogue.InstanceTypeOn() {
		return nil, notImplemented("size pools with inlineResources", "this deployment has no instance types")
	}
	return lister[catalogue.InstanceType]{
		kind:    "instancetype",
		rows:    func(context.Context) ([]catalogue.InstanceType, error) { return c.Catalogue.InstanceTypes, nil },
		key:     func(r catalogue.InstanceType) string { return r.Name },
		filters: map[string]func(catalogue.InstanceType) string{"name": func(r catalogue.InstanceType) string { return r.Name }},
	}.serve(c)
}

type quotaItem struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Team      string            `json:"team,omitempty"`
	User      string            `json:"user,omitempty"`
	Resources quotaResources    `json:"resources"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

type quotaResources struct {
	Total    map[string]int64 `json:"total,omitempty"`
	Used     map[string]int64 `json:"used,omitempty"`
	Reserved map[string]int64 `json:"reserved,omitempty"`
	Free     map[string]int64 `json:"free,omitempty"`
}

func listQuotas(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, c.own(access.KindQuota)); err != nil {
		return nil, err
	}
	if !c.Catalogue.QuotaOn() {
		return nil, notImplemented("nothing caps your pools but the cluster", "this deployment has no quotas")
	}
	return lister[quotaItem]{
		kind: "quota",
		rows: c.quotaItems,
		key:  func(r quotaItem) string { return r.ID },
		filters: map[string]func(quotaItem) string{
			"name":     func(r quotaItem) string { return r.Name },
			"team":     func(r quotaItem) string { return r.Team },
			"poolType": func(r quotaItem) string { return r.Metadata[catalogue.KeyPoolType] },
		},
		changes: c.watchObjects(&corev1.ResourceQuotaList{}, client.InNamespace(c.SystemNamespace)),
	}.serve(c)
}

func (c *call) quotaItems(ctx context.Context) ([]quotaItem, error) {
	all, err := c.ledger.Quotas(ctx)
	if err != nil {
		return nil, err
	}
	var out []quotaItem
	for _, q := range all {
		o := access.Object{Kind: access.KindQuota, Name: q.Name, Team: q.Team, User: q.User}
		if access.Authorize(c.caller, access.VerbGet, o) != nil {
			continue
		}
		item := quotaItem{ID: q.ID, Name: q.Name, Team: q.Team, User: q.User, Metadata: q.Metadata()}
		item.Resources = quotaResources{Total: q.Total, Used: q.Used}
		for instanceType := range q.Total {
			if free, capped := q.Free(instanceType); capped {
				if item.Resources.Free == nil {
					item.Resources.Free = map[string]int64{}
				}
				item.Resources.Free[instanceType] = free
			}
		}
		out = append(out, item)
	}
	return out, nil
}

type volumeItem struct {
	ClaimName    string            `json:"claimName"`
	DisplayName  string            `json:"displayName"`
	Capacity     string            `json:"capacity,omitempty"`
	AccessModes  []string          `json:"accessModes,omitempty"`
	StorageClass string            `json:"storageClass,omitempty"`
	Phase        string            `json:"phase"`
	Labels       map[string]string `json:"labels,omitempty"`
}

// annotationDisplayName is what people call a volume claim.
const annotationDisplayName = v1alpha1.Prefix + "display-name"

// listVolumes lists the bound claims of the caller's namespace: what an env can mount.
func listVolumes(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, c.own(access.KindVolume)); err != nil {
		return nil, err
	}
	if !c.Catalogue.VolumesOn() {
		return nil, notImplemented("envs mount nothing here", "volumes are switched off on this deployment")
	}
	return lister[volumeItem]{
		kind:    "volume",
		rows:    c.volumeItems,
		key:     func(r volumeItem) string { return r.ClaimName },
		filters: map[string]func(volumeItem) string{"claimName": func(r volumeItem) string { return r.ClaimName }},
		changes: c.watchObjects(&corev1.PersistentVolumeClaimList{}, client.InNamespace(c.caller.Namespace)),
	}.serve(c)
}

func (c *call) volumeItems(ctx context.Context) ([]volumeItem, error) {
	var list corev1.PersistentVolumeClaimList
	if err := c.Client.List(ctx, &list, client.InNamespace(c.caller.Namespace)); err != nil {
		return nil, err
	}
	var out []volumeItem
	for i := range list.Items {
		pvc := &list.Items[i]
		if pvc.Status.Phase != corev1.ClaimBound || access.Authorize(c.caller, access.VerbGet, objectOf(access.KindVolume, pvc)) != nil {
			continue
		}
		v := volumeItem{
			ClaimName: pvc.Name, DisplayName: pvc.Annotations[annotationDisplayName], Phase: string(pvc.Status.Phase),
			Labels: userKeys(pvc.Labels),
		}
		if v.DisplayName == "" {
			v.DisplayName = pvc.Name
		}
		if q, has := pvc.Status.Capacity[corev1.ResourceStorage]; has {
			v.Capacity = q.String()
		}
		for _, m := range pvc.Spec.AccessModes {
			v.AccessModes = append(v.AccessModes, string(m))
		}
		if pvc.Spec.StorageClassName != nil {
			v.StorageClass = *pvc.Spec.StorageClassName
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b volumeItem) int { return strings.Compare(a.ClaimName, b.ClaimName) })
	return out, nil
}
