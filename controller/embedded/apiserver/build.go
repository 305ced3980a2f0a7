package apiserver

import (
	"context"
	"crypto/subtle"
	"net"
	"net/http"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	extoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	apifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/compatibility"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

// kubernetesVersion is what the API says it is: that of the libraries it is made of.
const kubernetesVersion = "1.37"

// effectiveVersion answers /version with something that clients can parse; the libraries leave that to a release build.
type effectiveVersion struct{ compatibility.EffectiveVersion }

func (v effectiveVersion) Info() *apimachineryversion.Info {
	info := *v.EffectiveVersion.Info()
	info.GitVersion, info.GitCommit, info.GitTreeState = "v"+kubernetesVersion+".0+agentbox", "", ""
	return &info
}

// build makes one generic API server out of the CRD server and the built-in types, so that discovery, OpenAPI and the
// handler chain are the same for all of them. It also returns the handler for this process's own requests.
func build(storeEndpoint string, tls net.Listener, creds *credentials, inProcess *restclient.Config, logs *atomic.Pointer[LogFunc]) (*server.GenericAPIServer, http.Handler, error) {
	certificate, err := dynamiccertificates.NewStaticCertKeyContent("apiserver", creds.cert, creds.key)
	if err != nil {
		return nil, nil, err
	}
	admission := &namespaceAdmission{protected: protectedNamespaces}

	c := server.NewRecommendedConfig(extapiserver.Codecs)
	c.EffectiveVersion = effectiveVersion{compatibility.NewEffectiveVersionFromString(kubernetesVersion, "", "")}
	c.SecureServing = &server.SecureServingInfo{Listener: tls, Cert: certificate}
	c.LoopbackClientConfig = loopbackConfig(inProcess)
	c.Authentication.Authenticator = tokenAuthenticator(creds.token)
	c.Authorization.Authorizer = authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	c.AdmissionControl = admission
	c.LongRunningFunc = filters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString("log"))
	c.EnableProfiling = false
	c.EnableIndex = false
	c.ShutdownWatchTerminationGracePeriod = stopLimit
	// Reconcilers and claims of this process are the clients; they hold themselves back.
	c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight = 2000, 2000
	namer := openapi.NewDefinitionNamer(extapiserver.Scheme, published)
	c.OpenAPIConfig = server.DefaultOpenAPIConfig(definitions, namer)
	c.OpenAPIV3Config = server.DefaultOpenAPIV3Config(definitions, namer)
	c.OpenAPIConfig.Info.Title, c.OpenAPIV3Config.Info.Title = "AgentBox", "AgentBox"

	crdStorage := etcdOptions(storeEndpoint, "/registry/apiextensions.kubernetes.io", extapiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion))
	if err := crdStorage.ApplyTo(&c.Config); err != nil {
		return nil, nil, err
	}
	c.MergedResourceConfig = extapiserver.DefaultAPIResourceConfigSource()

	completed := (&extapiserver.Config{
		GenericConfig: c,
		ExtraConfig: extapiserver.ExtraConfig{
			MasterCount:          1,
			CRDRESTOptionsGetter: extoptions.NewCRDRESTOptionsGetter(*crdStorage, c.ResourceTransformers, c.StorageObjectCountTracker),
		},
	}).Complete()
	// The CRD server leaves the list of groups to an aggregator; here it is the only server.
	completed.GenericConfig.EnableDiscovery = true
	crds, err := completed.New(server.NewEmptyDelegate())
	if err != nil {
		return nil, nil, err
	}
	core := etcdOptions(storeEndpoint, "/registry/core", storageCodec())
	core.StorageConfig.StorageObjectCountTracker = c.StorageObjectCountTracker
	factory := &options.SimpleStorageFactory{StorageConfig: core.StorageConfig}
	if err := install(crds.GenericAPIServer, core.CreateRESTOptionsGetter(factory, nil), admission, logs); err != nil {
		return nil, nil, err
	}
	return crds.GenericAPIServer, shortChain(crds.GenericAPIServer.Handler.Director, &c.Config), nil
}

// shortChain is what a request of this process passes on its way: its token, its deadline, and being waited for by a
// stop. Tracing, auditing, impersonation, queueing and the accounts of them are for strangers, and were a third of what
// a write on the claim path cost.
func shortChain(api http.Handler, c *server.Config) http.Handler {
	h := apifilters.WithAuthentication(api, c.Authentication.Authenticator, apifilters.Unauthorized(c.Serializer), nil, nil)
	h = apifilters.WithRequestDeadline(h, c.AuditBackend, c.AuditPolicyRuleEvaluator, c.LongRunningFunc, c.Serializer, c.RequestTimeout)
	h = filters.WithWaitGroup(h, c.LongRunningFunc, c.NonLongRunningRequestWaitGroup)
	h = apifilters.WithRequestInfo(h, c.RequestInfoResolver)
	h = apifilters.WithRequestReceivedTimestamp(h)
	h = filters.WithPanicRecovery(h, c.RequestInfoResolver)
	return apifilters.WithAuditInit(h) // the handlers take its being there for granted
}

func etcdOptions(endpoint, prefix string, codec runtime.Codec) *options.EtcdOptions {
	c := storagebackend.NewDefaultConfig(prefix, codec)
	c.Transport.ServerList = []string{endpoint}
	o := options.NewEtcdOptions(c)
	o.SkipHealthEndpoints = true
	return o
}

// storageCodec stores the built-in types as protobuf, which is smaller and quicker than JSON.
func storageCodec() runtime.Codec {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	gvs := schema.GroupVersions{corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion}
	return codecs.CodecForVersions(info.Serializer, codecs.UniversalDeserializer(), gvs, gvs)
}

// install adds the built-in types to a server.
func install(s *server.GenericAPIServer, opts generic.RESTOptionsGetter, admission *namespaceAdmission, logs *atomic.Pointer[LogFunc]) error {
	core := server.NewDefaultAPIGroupInfo(corev1.GroupName, scheme, parameterCodec, codecs)
	leases := server.NewDefaultAPIGroupInfo(coordinationv1.GroupName, scheme, parameterCodec, codecs)
	events := server.NewDefaultAPIGroupInfo(eventsv1.GroupName, scheme, parameterCodec, codecs)
	groups := map[string]*server.APIGroupInfo{corev1.GroupName: &core, coordinationv1.GroupName: &leases, eventsv1.GroupName: &events}
	for _, info := range groups {
		info.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{}
	}
	for _, r := range resources() {
		storage, err := r.storage(opts)
		if err != nil {
			return err
		}
		for path, st := range storage {
			groups[r.group].VersionedResourcesStorageMap["v1"][path] = st
		}
		switch r.plural {
		case "namespaces":
			admission.namespaces = storage[r.plural].(rest.Getter)
		case "pods":
			core.VersionedResourcesStorageMap["v1"]["pods/log"] = &podLogs{storage[r.plural].(rest.Getter), logs}
		case "events":
			// One store under both of the names that clients know events by.
			events.VersionedResourcesStorageMap["v1"]["events"] = sharedStore{storage[r.plural].(kindStore)}
		}
	}
	if err := s.InstallLegacyAPIGroup(server.DefaultLegacyAPIPrefix, &core); err != nil {
		return err
	}
	// Clients that ask for the list of groups in its old form read it from here; the CRD server does not add its own.
	v := metav1.GroupVersionForDiscovery{GroupVersion: v1alpha1.GroupVersion.String(), Version: v1alpha1.GroupVersion.Version}
	s.DiscoveryGroupManager.AddGroup(metav1.APIGroup{
		Name: v1alpha1.GroupVersion.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
	})
	return s.InstallAPIGroups(&leases, &events)
}

// sharedStore serves a store that another resource owns.
type sharedStore struct{ kindStore }

func (sharedStore) Destroy() {}

// tokenAuthenticator knows one user, the administrator, by a bearer token.
func tokenAuthenticator(token string) authenticator.Request {
	admin := &user.DefaultInfo{Name: "agentbox:admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	return bearertoken.New(authenticator.TokenFunc(func(_ context.Context, presented string) (*authenticator.Response, bool, error) {
		if subtle.ConstantTimeCompare([]byte(presented), []byte(token)) != 1 {
			return nil, false, nil
		}
		return &authenticator.Response{User: admin}, true, nil
	}))
}

// loopbackConfig is what the server's own controllers use. It shows the token in its transport and not in its
// BearerToken, for which the generic server would add an authenticator that does not compare in constant time.
func loopbackConfig(c *restclient.Config) *restclient.Config {
	c = restclient.CopyConfig(c)
	token := c.BearerToken
	c.BearerToken = ""
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.NewBearerAuthRoundTripper(token, next)
	})
	return c
}
