package native

import (
	_ "embed"
	"net/url"
	"regexp"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// defaultDocs is what an env says about itself when its template does not.
//
//go:embed env_docs.md
var defaultDocs string

// envDocs renders how to use an env on this cluster. The key stays a placeholder, for every caller: a document can be
// shown, printed and passed on. Placeholders that this cluster cannot fill stay as they are.
func (c *call) envDocs(env *v1alpha1.SandboxEnv, template *v1alpha1.SandboxTemplate) string {
	text := defaultDocs
	if template != nil && template.Annotations[v1alpha1.AnnotationDocs] != "" {
		text = template.Annotations[v1alpha1.AnnotationDocs]
	}
	values := c.placeholders()
	values["AGBX_ENV_NAME"] = env.Name
	if segment := localSegment(env, c.ClusterID); segment != nil && len(segment.Members) > 0 {
		values["AGBX_POOL_NAME"] = segment.Members[0].Name
	}
	return render(text, values)
}

// placeholders are the addresses of this cluster, as the caller reached it.
func (c *call) placeholders() map[string]string {
	public := c.PublicURL(c.request)
	values := map[string]string{
		"AGBX_CLUSTER_ID": c.ClusterID,
		"AGBX_NATIVE_URL": public,
		"AGBX_E2B_URL":    public + "/e2b",
		"AGBX_DATA_URL":   public,
	}
	if u, err := url.Parse(public); err == nil && u.Host != "" {
		values["AGBX_HOST"] = u.Host
		values["AGBX_INNER_IP"] = u.Hostname()
		values["AGBX_HTTPS"] = "false"
		if u.Scheme == "https" {
			values["AGBX_HTTPS"] = "true"
		}
	}
	if c.Domain != "" {
		values["AGBX_DATA_DOMAIN"] = c.Domain
	}
	return values
}

var placeholder = regexp.MustCompile(`\$\{AGBX_[A-Z0-9_]+\}`)

// render fills the ${AGBX_NAME} placeholders that it has a value for.
func render(text string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		if v, ok := values[p[2:len(p)-1]]; ok {
			return v
		}
		return p
	})
}

// localSegment is an env's part on a cluster; nil when it has none there.
func localSegment(env *v1alpha1.SandboxEnv, clusterID string) *v1alpha1.ClusterSegment {
	for i := range env.Spec.Clusters {
		if env.Spec.Clusters[i].ClusterID == clusterID {
			return &env.Spec.Clusters[i]
		}
	}
	return nil
}
