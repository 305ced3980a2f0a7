package filesystem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"connectrpc.com/connect"

	"navix.sh/agentbox/envd/rpc"
	spec "navix.sh/agentbox/envd/spec/filesystem"
	"navix.sh/agentbox/envd/watch"
)

// maxWatchers bounds the watchers that clients create and poll; many never remove theirs.
const maxWatchers = 1024

// watchers are those of CreateWatcher, which live until they are removed.
type watchers struct {
	mu     sync.Mutex
	byID   map[string]polled
	closed bool
}

type polled struct {
	*watch.Watcher
	target       target
	includeEntry bool
}

// watchRequest is what WatchDir and CreateWatcher ask for.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

func (s *Service) watch(ctx context.Context, req caller, msg watchRequest) (polled, error) {
	at, err := s.resolve(req, msg.GetPath())
	if err != nil {
		return polled{}, err
	}
	err = at.user.Act(func() error {
		info, err := os.Stat(at.path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", at.path))
		}
		if kind, remote := networkMount(at.path); remote && !msg.GetAllowNetworkMounts() {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s is on a network mount (%s), where changes made elsewhere are not seen: set allow_network_mounts to watch it all the same", at.path, kind))
		}
		return nil
	})
	if err != nil {
		return polled{}, failure("path", at.path, err)
	}
	w, err := watch.New(ctx, at.user, at.path, msg.GetRecursive())
	switch {
	case errors.Is(err, watch.ErrLimit):
		return polled{}, connect.NewError(connect.CodeResourceExhausted, err)
	case err != nil:
		return polled{}, failure("path", at.path, err)
	}
	return polled{Watcher: w, target: at, includeEntry: msg.GetIncludeEntry()}, nil
}

// WatchDir streams the changes of a directory until the caller goes.
func (s *Service) WatchDir(ctx context.Context, req *connect.Request[spec.WatchDirRequest], out *connect.ServerStream[spec.WatchDirResponse]) error {
	w, err := s.watch(ctx, req, req.Msg)
	if err != nil {
		return err
	}
	defer w.Close()
	start := &spec.WatchDirResponse{Event: &spec.WatchDirResponse_Start{Start: &spec.WatchDirResponse_StartEvent{}}}
	if err := out.Send(start); err != nil {
		return err
	}
	beat := rpc.NewKeepalive(req.Header().Get(rpc.KeepaliveHeader))
	defer beat.Stop()
	for {
		events, err := w.Next(ctx, beat.C)
		if err != nil {
			return ended(err)
		}
		if len(events) == 0 {
			alive := &spec.WatchDirResponse{Event: &spec.WatchDirResponse_Keepalive{Keepalive: &spec.WatchDirResponse_KeepAlive{}}}
			if err := out.Send(alive); err != nil {
				return err
			}
		}
		for _, event := range w.translate(events) {
			if err := out.Send(&spec.WatchDirResponse{Event: &spec.WatchDirResponse_Filesystem{Filesystem: event}}); err != nil {
				return err
			}
		}
		beat.Reset()
	}
}

// CreateWatcher starts a watch whose events GetWatcherEvents fetches.
func (s *Service) CreateWatcher(ctx context.Context, req *connect.Request[spec.CreateWatcherRequest]) (*connect.Response[spec.CreateWatcherResponse], error) {
	w, err := s.watch(ctx, req, req.Msg)
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	if err := s.watchers.add(id, w); err != nil {
		w.Close()
		return nil, err
	}
	return connect.NewResponse(&spec.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents returns what has happened since the last call.
func (s *Service) GetWatcherEvents(_ context.Context, req *connect.Request[spec.GetWatcherEventsRequest]) (*connect.Response[spec.GetWatcherEventsResponse], error) {
	w, found := s.watchers.get(req.Msg.GetWatcherId())
	if !found {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	events, err := w.Take()
	if err != nil {
		return nil, ended(err)
	}
	return connect.NewResponse(&spec.GetWatcherEventsResponse{Events: w.translate(events)}), nil
}

// RemoveWatcher ends a watch.
func (s *Service) RemoveWatcher(_ context.Context, req *connect.Request[spec.RemoveWatcherRequest]) (*connect.Response[spec.RemoveWatcherResponse], error) {
	w, found := s.watchers.take(req.Msg.GetWatcherId())
	if !found {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	w.Close()
	return connect.NewResponse(&spec.RemoveWatcherResponse{}), nil
}

// Close ends every watch that clients left.
func (s *Service) Close() { s.watchers.close() }

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", id))
}

// ended words what ended a watch.
func ended(err error) error {
	switch {
	case errors.Is(err, watch.ErrOverflow):
		return connect.NewError(connect.CodeDataLoss, err)
	case errors.Is(err, watch.ErrLimit):
		return connect.NewError(connect.CodeResourceExhausted, err)
	case errors.Is(err, fs.ErrClosed):
		return connect.NewError(connect.CodeUnavailable, errors.New("the watch was closed"))
	}
	return rpc.Ended(err)
}

var eventTypes = map[watch.Op]spec.EventType{
	watch.Create: spec.EventType_EVENT_TYPE_CREATE,
	watch.Write:  spec.EventType_EVENT_TYPE_WRITE,
	watch.Remove: spec.EventType_EVENT_TYPE_REMOVE,
	watch.Rename: spec.EventType_EVENT_TYPE_RENAME,
	watch.Chmod:  spec.EventType_EVENT_TYPE_CHMOD,
}

// translate adds entries where they were asked for and there still is something to describe.
func (p polled) translate(events []watch.Event) []*spec.FilesystemEvent {
	list := make([]*spec.FilesystemEvent, 0, len(events))
	for _, event := range events {
		translated := &spec.FilesystemEvent{Name: event.Name, Type: eventTypes[event.Op]}
		if p.includeEntry && event.Op != watch.Remove && event.Op != watch.Rename {
			at := target{path: filepath.Join(p.target.path, event.Name), user: p.target.user}
			if entry, err := at.describe(); err == nil {
				translated.Entry = entry
			}
		}
		list = append(list, translated)
	}
	return list
}

func (w *watchers) add(id string, p polled) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return connect.NewError(connect.CodeUnavailable, errors.New("envd is shutting down"))
	}
	if len(w.byID) >= maxWatchers {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d watchers already: remove those that are no longer needed", maxWatchers))
	}
	if w.byID == nil {
		w.byID = map[string]polled{}
	}
	w.byID[id] = p
	return nil
}

func (w *watchers) get(id string) (polled, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, found := w.byID[id]
	return p, found
}

func (w *watchers) take(id string) (polled, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, found := w.byID[id]
	delete(w.byID, id)
	return p, found
}

func (w *watchers) close() {
	w.mu.Lock()
	w.closed = true
	all := w.byID
	w.byID = nil
	w.mu.Unlock()
	for _, p := range all {
		p.Close()
	}
}
