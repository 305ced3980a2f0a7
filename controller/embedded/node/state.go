package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const stateName = "state.json"

// podState is what an agent must know about a Pod's sandbox to take it over from an agent that died. It is written
// before a sandbox or container is started, so that nothing runs that is not on record.
type podState struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	IP        string    `json:"ip"`
	Network   bool      `json:"network"`
	Runtime   string    `json:"runtime,omitempty"` // of the sandbox
	Started   time.Time `json:"started"`
	ResetDone string    `json:"resetDone,omitempty"`
	// VolumeImages are the IDs of the images that volumes of the sandbox show.
	VolumeImages []string                   `json:"volumeImages,omitempty"`
	Containers   map[string]*containerState `json:"containers"`
}

// containerState is one container of a Pod, over its restarts.
type containerState struct {
	// ID is the running container, or the one that ended last.
	ID       string `json:"id,omitempty"`
	Previous string `json:"previous,omitempty"` // kept for its log
	// Image is the reference in the Pod's spec that the container was started for; ImageID is the content.
	Image    string                           `json:"image,omitempty"`
	ImageID  string                           `json:"imageID,omitempty"`
	Restarts int32                            `json:"restarts,omitempty"`
	Started  time.Time                        `json:"started,omitzero"`
	Ended    *corev1.ContainerStateTerminated `json:"ended,omitempty"`
	Last     *corev1.ContainerStateTerminated `json:"last,omitempty"`
}

// images are the IDs of the images that the sandbox uses.
func (s *podState) images() map[string]bool {
	used := map[string]bool{}
	for _, id := range s.VolumeImages {
		used[id] = true
	}
	for _, c := range s.Containers {
		if c.ID != "" && c.Ended == nil {
			used[c.ImageID] = true
		}
	}
	return used
}

func (s *podState) save(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, stateName)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err := errors.Join(err, f.Truncate(int64(len(data))), f.Close()); err != nil {
		return err
	}
	// Two files that take turns: making and deleting one for every save is what some file systems are slowest at.
	err = unix.Renameat2(unix.AT_FDCWD, path+".new", unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) { // the first one, or a file system that cannot
		return os.Rename(path+".new", path)
	}
	return err
}

// loadState returns nil when nothing is on record. A save that goes on meanwhile may write to the file that is read.
func loadState(dir string) (*podState, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &podState{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("the record of a Pod's sandbox in %s is damaged: %w", dir, err)
	}
	if s.Containers == nil {
		s.Containers = map[string]*containerState{}
	}
	return s, nil
}
