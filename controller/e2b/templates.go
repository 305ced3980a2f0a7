package e2b

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/access"
	"navix.sh/agentbox/controller/api/v1alpha1"
	"navix.sh/agentbox/controller/claim"
)

// templateBody is E2B's Template. An environment is shown as one; its only build is the environment itself.
type templateBody struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	CPUCount      int64      `json:"cpuCount"`
	MemoryMB      int64      `json:"memoryMB"`
	DiskSizeMB    int64      `json:"diskSizeMB"`
	Public        bool       `json:"public"`
	Aliases       []string   `json:"aliases"`
	Names         []string   `json:"names"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *struct{}  `json:"createdBy"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int64      `json:"spawnCount"`
	BuildCount    int32      `json:"buildCount"`
	EnvdVersion   string     `json:"envdVersion"`
	BuildStatus   string     `json:"buildStatus"`
}

// templateDetailBody is E2B's TemplateWithBuilds.
type templateDetailBody struct {
	TemplateID    string      `json:"templateID"`
	Public        bool        `json:"public"`
	Aliases       []string    `json:"aliases"`
	Names         []string    `json:"names"`
	CreatedAt     time.Time   `json:"createdAt"`
	UpdatedAt     time.Time   `json:"updatedAt"`
	LastSpawnedAt *time.Time  `json:"lastSpawnedAt"`
	SpawnCount    int64       `json:"spawnCount"`
	Builds        []buildBody `json:"builds"`
}

type buildBody struct {
	BuildID     string    `json:"buildID"`
	Status      string    `json:"status"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	CPUCount    int64     `json:"cpuCount"`
	MemoryMB    int64     `json:"memoryMB"`
	DiskSizeMB  int64     `json:"diskSizeMB"`
	EnvdVersion string    `json:"envdVersion"`
}

type aliasBody struct {
	TemplateID string `json:"templateID"`
	Public     bool   `json:"public"`
}

func (h *Handler) listTemplates(ctx context.Context, c *call) (reply, error) {
	// teamID chooses among the teams of a signed-in person; a key has one.
	if _, err := c.queryParams("teamID"); err != nil {
		return reply{}, err
	}
	all, err := h.templates(ctx, c)
	if err != nil {
		return reply{}, err
	}
	return reply{Status: http.StatusOK, Body: all}, nil
}

func (h *Handler) listTemplatesV2(ctx context.Context, c *call) (reply, error) {
	q, err := c.queryParams("teamID", "limit", "nextToken")
	if err != nil {
		return reply{}, err
	}
	limit, err := intParam(q, "limit", maxPage, 1, maxPage)
	if err != nil {
		return reply{}, err
	}
	all, err := h.templates(ctx, c)
	if err != nil {
		return reply{}, err
	}
	if token := q.Get("nextToken"); token != "" {
		after, err := parseCursor(token, true)
		if err != nil {
			return reply{}, err
		}
		for len(all) > 0 && all[0].TemplateID <= after.ID {
			all = all[1:]
		}
	}
	header := http.Header{}
	if len(all) > int(limit) {
		all = all[:limit]
		header.Set("X-Next-Token", cursor{ID: all[limit-1].TemplateID, Ascending: true}.String())
	}
	return reply{Status: http.StatusOK, Body: all, Header: header}, nil
}

func (h *Handler) templates(ctx context.Context, c *call) ([]templateBody, error) {
	envs, err := h.environments(ctx, c)
	if err != nil {
		return nil, err
	}
	uses, err := h.spawns(ctx, c)
	if err != nil {
		return nil, err
	}
	out := make([]templateBody, 0, len(envs))
	for i := range envs {
		out = append(out, h.template(&envs[i], uses[envs[i].Name]))
	}
	return out, nil
}

func (h *Handler) getTemplate(ctx context.Context, c *call) (reply, error) {
	if _, err := c.queryParams("limit", "nextToken"); err != nil {
		return reply{}, err
	}
	env, err := h.templateNamed(ctx, c, c.params["templateID"])
	if err != nil {
		return reply{}, err
	}
	uses, err := h.spawns(ctx, c)
	if err != nil {
		return reply{}, err
	}
	t := h.template(env, uses[env.Name])
	return reply{Status: http.StatusOK, Body: templateDetailBody{
		TemplateID: t.TemplateID, Public: t.Public, Aliases: t.Aliases, Names: t.Names, CreatedAt: t.CreatedAt,
		UpdatedAt: t.UpdatedAt, LastSpawnedAt: t.LastSpawnedAt, SpawnCount: t.SpawnCount,
		Builds: []buildBody{{BuildID: t.BuildID, Status: t.BuildStatus, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
			CPUCount: t.CPUCount, MemoryMB: t.MemoryMB, DiskSizeMB: t.DiskSizeMB, EnvdVersion: t.EnvdVersion}},
	}}, nil
}

// templateAlias answers whether a name can be used in a create. Missing and foreign read the same.
func (h *Handler) templateAlias(ctx context.Context, c *call) (reply, error) {
	env, err := h.templateNamed(ctx, c, c.params["alias"])
	if err != nil {
		return reply{}, err
	}
	return reply{Status: http.StatusOK, Body: aliasBody{TemplateID: env.Name}}, nil
}

func (h *Handler) templateNamed(ctx context.Context, c *call, text string) (*v1alpha1.SandboxEnv, error) {
	ref, err := ParseReference(text)
	if err != nil {
		return nil, &apiError{Status: http.StatusNotFound, Message: err.Error()}
	}
	envs, err := h.environments(ctx, c)
	if err != nil {
		return nil, err
	}
	if ref.Cluster == "" || ref.Cluster == h.cluster {
		env, err := pick(envs, ref.Name)
		if err != nil || env != nil {
			return env, err
		}
	}
	return nil, &apiError{Status: http.StatusNotFound, Message: fmt.Sprintf("template %q not found: %s", text, unknownTemplate(ref.Name, envs))}
}

// use is what is known of the sandboxes of an environment: the live ones and the records of the ended.
type use struct {
	count int64
	last  time.Time
}

func (h *Handler) spawns(ctx context.Context, c *call) (map[string]use, error) {
	owner := claim.Owner{Namespace: c.caller.Namespace, Team: c.caller.Team, User: c.caller.User}
	err := c.authorize(access.VerbList, access.Object{Kind: access.KindSandbox, Namespace: owner.Namespace, Team: owner.Team, User: owner.User})
	if err != nil {
		return nil, err
	}
	all, err := h.claims.List(ctx, claim.Filter{Owner: owner, Finished: true})
	if err != nil {
		return nil, err
	}
	uses := map[string]use{}
	for _, sb := range all {
		u := uses[sb.Env]
		u.count++
		if sb.ClaimedAt.After(u.last) {
			u.last = sb.ClaimedAt
		}
		uses[sb.Env] = u
	}
	return uses, nil
}

func (h *Handler) template(env *v1alpha1.SandboxEnv, u use) templateBody {
	created := env.CreationTimestamp.UTC()
	t := templateBody{
		TemplateID:  env.Name,
		BuildID:     string(env.UID),
		CPUCount:    minCPUs,
		MemoryMB:    minMemoryMB,
		Aliases:     append([]string{env.Name}, aliases(env)...),
		Names:       append([]string{env.Name}, aliases(env)...),
		CreatedAt:   created,
		UpdatedAt:   created,
		SpawnCount:  u.count,
		BuildCount:  1,
		EnvdVersion: EnvdVersion,
		BuildStatus: "ready",
	}
	for _, m := range env.ManagedFields {
		if m.Subresource == "" && m.Time != nil && m.Time.After(t.UpdatedAt) {
			t.UpdatedAt = m.Time.UTC()
		}
	}
	if !u.last.IsZero() {
		last := u.last.UTC()
		t.LastSpawnedAt = &last
	}
	if r := h.resources(env); r != nil {
		t.CPUCount = cpuCount(quantity(r, corev1.ResourceCPU))
		t.MemoryMB = memoryMB(quantity(r, corev1.ResourceMemory))
		if disk, ok := r.Limits[corev1.ResourceEphemeralStorage]; ok {
			t.DiskSizeMB = disk.Value() >> 20
		}
	}
	return t
}

// resources are those of the first member pool here: an environment has one size or several, E2B's template has one.
func (h *Handler) resources(env *v1alpha1.SandboxEnv) *corev1.ResourceRequirements {
	for _, cluster := range env.Status.Clusters {
		if cluster.ClusterID != h.cluster {
			continue
		}
		for _, member := range cluster.ObservedMembers {
			if member.EffectiveResources != nil {
				return member.EffectiveResources
			}
		}
	}
	return nil
}

func quantity(r *corev1.ResourceRequirements, name corev1.ResourceName) string {
	if q, ok := r.Limits[name]; ok {
		return q.String()
	}
	if q, ok := r.Requests[name]; ok {
		return q.String()
	}
	return ""
}
