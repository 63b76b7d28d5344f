<?php
// The webman contestant: the framework's own request path (route, controller, response) for the site beside this file.
use Psr\Log\NullLogger;
use support\Request;
use Webman\App;
use Workerman\Events\Event;
use Workerman\Events\Select;
use Workerman\Worker;

define('BASE_PATH', __DIR__ . '/site');
$loader = require getenv('VENDOR') . '/autoload.php';
$loader->addPsr4('app\\', BASE_PATH . '/app');

Worker::$pidFile = getenv('WORK') . '/pid';
Worker::$logFile = getenv('WORK') . '/workerman.log';
Worker::$eventLoopClass = extension_loaded('event') ? Event::class : Select::class;
$worker = new Worker('http://127.0.0.1:' . getenv('CEILING_PORT'));
$worker->count = (int) getenv('CEILING_WORKERS');
$worker->onWorkerStart = static function (Worker $worker): void {
    require getenv('VENDOR') . '/workerman/webman-framework/src/support/bootstrap.php';
    $app = new App(Request::class, new NullLogger(), app_path(), public_path());
    $worker->onMessage = [$app, 'onMessage'];
    $app->onWorkerStart($worker);
};
Worker::runAll();
