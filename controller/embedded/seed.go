package embedded

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"navix.sh/agentbox/controller/api/v1alpha1"
)

//go:embed seed
var seedFiles embed.FS

// seed gives a fresh platform its first template and environment. It runs once in the life of a data directory: what
// a person deletes stays deleted.
func seed(ctx context.Context, config *rest.Config, dataDir, clusterID string) error {
	done := filepath.Join(dataDir, "seeded")
	if _, err := os.Stat(done); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	docs, err := seedFiles.ReadFile("seed/docs.md")
	if err != nil {
		return err
	}
	var template v1alpha1.SandboxTemplate
	if err := decodeSeed("seed/template.yaml", clusterID, &template); err != nil {
		return err
	}
	template.Annotations = map[string]string{v1alpha1.AnnotationDocs: string(docs)}
	var env v1alpha1.SandboxEnv
	if err := decodeSeed("seed/env.yaml", clusterID, &env); err != nil {
		return err
	}
	for _, o := range []client.Object{&template, &env} {
		// AlreadyExists: an earlier start was killed between the write and the mark.
		if err := client.IgnoreAlreadyExists(c.Create(ctx, o)); err != nil {
			return fmt.Errorf("create the first %T: %w", o, err)
		}
	}
	return os.WriteFile(done, nil, 0o600)
}

func decodeSeed(name, clusterID string, into any) error {
	raw, err := seedFiles.ReadFile(name)
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict([]byte(strings.ReplaceAll(string(raw), "CLUSTER_ID", clusterID)), into)
}
