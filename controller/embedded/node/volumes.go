package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/agentbox/controller/embedded/runtime"
	"navix.sh/agentbox/controller/embedded/runtime/namespaces"
)

// volumes are the prepared volumes of a Pod, by name.
type volumes map[string]volume

type volume struct {
	source   string // a directory of the machine
	memory   bool
	size     int64
	readOnly bool
}

func (w *worker) volumeDir(name string) string { return filepath.Join(w.dir, "volumes", name) }

// prepare makes the volumes of a Pod. It reports whether they are all there, and otherwise when to try again.
func (w *worker) prepare(ctx context.Context) (time.Duration, bool) {
	if w.prepared {
		return 0, true
	}
	made := volumes{}
	for i := range w.pod.Spec.Volumes {
		spec := &w.pod.Spec.Volumes[i]
		if spec.Image != nil {
			img, wait := w.image(spec.Image.Reference, spec.Image.PullPolicy)
			if img == nil {
				w.waitAll(wait.reason, wait.message)
				return wait.due, false
			}
			if !w.hold(img) {
				return 0, false // removed meanwhile: the next pass pulls it again
			}
			// One that an earlier agent found under the name stays on record: a container may still show it.
			if !slices.Contains(w.state.VolumeImages, img.ID) {
				w.state.VolumeImages = append(w.state.VolumeImages, img.ID)
			}
			made[spec.Name] = volume{source: img.Tree, readOnly: true}
			continue
		}
		v, err := w.makeVolume(ctx, spec)
		if err != nil {
			w.waitAll("CreateContainerConfigError", fmt.Sprintf("volume %s: %v", spec.Name, err))
			return 2 * time.Second, false
		}
		made[spec.Name] = v
	}
	if err := w.save(); err != nil {
		w.waitAll("CreateContainerError", err.Error())
		return retryPass, false
	}
	w.volumes, w.prepared = made, true
	return 0, true
}

func (w *worker) makeVolume(ctx context.Context, spec *corev1.Volume) (volume, error) {
	dir := w.volumeDir(spec.Name)
	switch {
	case spec.EmptyDir != nil && spec.EmptyDir.Medium == corev1.StorageMediumMemory:
		v := volume{memory: true}
		if spec.EmptyDir.SizeLimit != nil {
			v.size = spec.EmptyDir.SizeLimit.Value()
		}
		return v, nil
	case spec.EmptyDir != nil:
		return volume{source: dir}, w.makeEmpty(dir)
	case spec.Secret != nil:
		data, err := w.ref(ctx, "Secret", spec.Secret.SecretName, spec.Secret.Optional)
		if err != nil {
			return volume{}, err
		}
		return volume{source: dir, readOnly: true}, w.writeFiles(dir, data, spec.Secret.Items, spec.Secret.DefaultMode, spec.Secret.Optional)
	case spec.ConfigMap != nil:
		data, err := w.ref(ctx, "ConfigMap", spec.ConfigMap.Name, spec.ConfigMap.Optional)
		if err != nil {
			return volume{}, err
		}
		return volume{source: dir, readOnly: true}, w.writeFiles(dir, data, spec.ConfigMap.Items, spec.ConfigMap.DefaultMode, spec.ConfigMap.Optional)
	case spec.PersistentVolumeClaim != nil:
		return w.claimVolume(ctx, spec.PersistentVolumeClaim)
	}
	return volume{}, fmt.Errorf("volumes of this type are not supported on this node; use emptyDir, secret, configMap, persistentVolumeClaim or image")
}

func (w *worker) makeEmpty(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if os.IsExist(err) {
			return nil // of this Pod's sandbox, which was taken over
		}
		return err
	}
	if err := w.own(dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777)
}

func (w *worker) own(path string) error {
	ids := w.agent.runtime.IDs()
	if ids.Single() {
		return nil
	}
	return os.Lchown(path, ids.Base, ids.Base)
}

// wipeVolumes replaces every emptyDir on the disk by an empty one. The old ones are deleted in the background.
func (w *worker) wipeVolumes() error {
	// By the specification: an agent that has just taken the Pod over has not prepared its volumes yet.
	for i := range w.pod.Spec.Volumes {
		spec := &w.pod.Spec.Volumes[i]
		if spec.EmptyDir == nil || spec.EmptyDir.Medium == corev1.StorageMediumMemory {
			continue
		}
		dir := w.volumeDir(spec.Name)
		trash := filepath.Join(w.dir, ".trash-"+spec.Name+"-"+newContainerID())
		if err := os.Rename(dir, trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		w.agent.wg.Go(func() { _ = namespaces.RemoveTree(trash) }) // goes with the Pod's directory at the latest
		if err := w.makeEmpty(dir); err != nil {
			return err
		}
	}
	return nil
}

const defaultFileMode = 0o644

// writeFiles writes a Secret's or ConfigMap's data into dir: all of it, or the chosen items under their paths.
func (w *worker) writeFiles(dir string, data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	if len(items) == 0 {
		for key := range data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	if err := namespaces.RemoveTree(dir + ".new"); err != nil {
		return err
	}
	if err := os.MkdirAll(dir+".new", 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir + ".new")
	if err != nil {
		return err
	}
	defer root.Close()
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("the key %q does not exist", item.Key)
		}
		perm := fs.FileMode(defaultFileMode)
		if mode != nil {
			perm = fs.FileMode(*mode) & fs.ModePerm
		}
		if item.Mode != nil {
			perm = fs.FileMode(*item.Mode) & fs.ModePerm
		}
		name := path.Clean(item.Path)
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(name, content, 0o600); err != nil {
			return err
		}
		if err := root.Chmod(name, perm); err != nil {
			return err
		}
	}
	err = filepath.WalkDir(dir+".new", func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return w.own(p)
	})
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); err == nil {
		return namespaces.RemoveTree(dir + ".new") // mounted by a container that was taken over
	}
	return os.Rename(dir+".new", dir)
}

// mounts turns a container's volume mounts into the runtime's.
func (w *worker) mounts(spec *corev1.Container) ([]runtime.Mount, error) {
	var mounts []runtime.Mount
	for _, m := range spec.VolumeMounts {
		v, ok := w.volumes[m.Name]
		if !ok {
			return nil, fmt.Errorf("volumeMount %s: the Pod has no such volume", m.Name)
		}
		if m.SubPathExpr != "" {
			return nil, fmt.Errorf("volumeMount %s: subPathExpr is not supported on this node; use subPath", m.Name)
		}
		if strings.Contains("/"+m.SubPath+"/", "/../") {
			return nil, fmt.Errorf("volumeMount %s: subPath %q must not contain '..'", m.Name, m.SubPath)
		}
		mount := runtime.Mount{
			Source: v.source, Size: v.size, SubPath: m.SubPath, Target: path.Clean("/" + m.MountPath), ReadOnly: m.ReadOnly || v.readOnly,
		}
		if v.memory {
			mount.Memory, mount.Source = m.Name, ""
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}
