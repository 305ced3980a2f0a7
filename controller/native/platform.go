package native

import (
	"context"

	"navix.sh/agentbox/controller/access"
)

type versionInfo struct {
	Version     string   `json:"version"`
	SpecVersion string   `json:"specVersion"`
	ClusterID   string   `json:"clusterId"`
	Features    []string `json:"features"`
}

func getVersion(c *call) (*response, error) {
	return ok(versionInfo{
		Version: c.Version, SpecVersion: c.document.spec.Info.Version, ClusterID: c.ClusterID,
		Features: []string{"dry-run", "etag", "filters", "paging", "watch", "log-follow"},
	}), nil
}

type whoAmI struct {
	Role      access.Role `json:"role"`
	Mode      string      `json:"mode"`
	User      string      `json:"user"`
	Team      string      `json:"team"`
	Namespace string      `json:"namespace"`
}

func modeOf(agent bool) string {
	if agent {
		return "agent"
	}
	return "unrestricted"
}

func getWhoAmI(c *call) (*response, error) {
	if err := c.authorize(access.VerbGet, access.Object{Kind: access.KindCatalogue}); err != nil {
		return nil, err
	}
	return ok(whoAmI{Role: c.caller.Role, Mode: modeOf(c.caller.Agent), User: c.caller.User, Team: c.caller.Team, Namespace: c.caller.Namespace}), nil
}

type featureGates struct {
	Quota        bool `json:"quota"`
	InstanceType bool `json:"instanceType"`
	Volumes      bool `json:"volumes"`
}

func getFeatureGates(c *call) (*response, error) {
	if err := c.authorize(access.VerbGet, access.Object{Kind: access.KindCatalogue}); err != nil {
		return nil, err
	}
	return ok(featureGates{Quota: c.Catalogue.QuotaOn(), InstanceType: c.Catalogue.InstanceTypeOn(), Volumes: c.Catalogue.VolumesOn()}), nil
}

type cluster struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Local bool   `json:"local"`
}

type clusterList struct {
	Clusters     []cluster `json:"clusters"`
	MultiCluster bool      `json:"multiCluster"`
	Total        int       `json:"total"`
}

func listClusters(c *call) (*response, error) {
	if err := c.authorize(access.VerbList, access.Object{Kind: access.KindCatalogue}); err != nil {
		return nil, err
	}
	return lister[cluster]{
		kind: "cluster",
		rows: func(context.Context) ([]cluster, error) {
			return []cluster{{ID: c.ClusterID, Name: c.ClusterName, Local: true}}, nil
		},
		key:     func(r cluster) string { return r.ID },
		filters: map[string]func(cluster) string{"id": func(r cluster) string { return r.ID }, "name": func(r cluster) string { return r.Name }},
		wrap:    func(p page[cluster]) any { return clusterList{Clusters: p.Items, Total: p.Total} },
	}.serve(c)
}
