<?php
use Webman\Route;

Route::any('/', [app\controller\IndexController::class, 'index']);
